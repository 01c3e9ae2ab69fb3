"""Run a whole check where nothing it does can reach the notebook's kernel.

On Linux without a GPU the check runs in a forked child: it sees the learner's objects exactly as they are in
the notebook, closures included, and an endless loop in C, ``os._exit`` or a replaced method of PyTorch ends
with it. A CUDA context does not survive a fork, and Windows and macOS have no safe one, so there the check
runs in this process, held by `sandbox` alone: everything but a loop in C and a captured reference to
``os._exit`` is still contained (on Python 3.10 and 3.12 nested loops that catch
BaseException are not). Both ways run the same code on the same inputs and come to the same verdict.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import torch

from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.containment.interrupts import Interrupt, interrupts_held
from amp_lessons.exercises.containment.process_state import neutral
from amp_lessons.exercises.containment.time_limit import TimeUp

Way = Literal["auto", "fork", "inprocess"]
Ending = Literal["finished", "out of time", "died", "unusable"]

_READY = b"R"
_LENGTH = struct.Struct("<Q")
_GET_READY_S = 5.0
_POLL_S = 0.05
_RESERVE = 0.1


@dataclass(frozen=True)
class Result:
    """How a job ended, and what it returned where it did."""

    ending: Ending
    value: Any = None
    stopped_at: str = ""
    printed: str = ""
    characters_printed: int = 0
    exit_code: int = 0


def can_fork() -> bool:
    """Whether a forked child of this process can run PyTorch safely.

    PyTorch's own data loader relies on the same thing. It does not hold once an accelerator is in use.
    """
    return sys.platform.startswith("linux") and hasattr(os, "fork") and not torch.accelerator.is_available()


def run(job: Callable[[], Any], limit_s: float, way: Way = "auto") -> Result:
    """Run ``job`` within ``limit_s`` seconds and return how it ended, in a child process where that is
    possible.

    The value of ``job`` must be picklable. Raises only KeyboardInterrupt, when the user interrupts.
    """
    _load_what_pytorch_loads_late()
    if way == "inprocess" or sandbox.active() or (way == "auto" and not can_fork()):
        return run_in_process(job, limit_s)
    result = _run_in_child(job, limit_s)
    return run_in_process(job, limit_s) if result.ending == "unusable" else result


def run_in_process(job: Callable[[], Any], limit_s: float) -> Result:
    """Run ``job`` here, with what `sandbox` can hold."""
    ending: Ending = "finished"
    value = None
    with sandbox.contained(limit_s) as session:
        try:
            value = job()
        except TimeUp:
            ending = "out of time"
    output = session.output
    return Result(ending, value, session.stopped_at, output.text(), output.characters)


def _load_what_pytorch_loads_late() -> None:
    """Make the first optimizer of this process: it imports torch._dynamo, which takes seconds, once."""
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _run_in_child(job: Callable[[], Any], limit_s: float) -> Result:
    interrupt = Interrupt()
    with interrupts_held(interrupt):
        return _talk_to_child(job, limit_s, interrupt)


def _talk_to_child(job: Callable[[], Any], limit_s: float, interrupt: Interrupt) -> Result:
    reading, writing = os.pipe()
    child = 0
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns that a fork of a process with threads may lock up; the child proves that it
            # did not
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _work_as_child(job, limit_s, writing)
        os.close(writing)
        writing = -1
        return _Conversation(reading, child, interrupt).result(limit_s)
    finally:
        for end in (reading, writing):
            if end >= 0:
                os.close(end)
        if child:
            _end(child)


def _work_as_child(job: Callable[[], Any], limit_s: float, writing: int) -> NoReturn:
    """Be the child: prove that PyTorch works, run the job, send its result, end without any clean-up."""
    child = os.getpid()
    leave = os._exit  # the job runs with os._exit replaced
    try:
        # the user's interrupt is for the parent, and whatever the learner starts can be ended together
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _prove_that_pytorch_works()
        os.write(writing, _READY)
        _silence_file_descriptors()
        # the reserve lets the child say where the learner's code was, before the parent ends it
        payload = pickle.dumps(run_in_process(job, limit_s * (1 - _RESERVE)))
        if os.getpid() == child:  # a copy that the learner's code made of this process has nothing to report
            _write_all(writing, _LENGTH.pack(len(payload)) + payload)
        leave(0)
    except BaseException:
        leave(70)


def _prove_that_pytorch_works() -> None:
    with neutral():
        weight = torch.ones(4, 4, requires_grad=True)
        (torch.ones(4, 4) @ weight).sum().backward()


def _silence_file_descriptors() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class _Conversation:
    """The parent's side of the pipe: a sign of life, then the length of the result, then the result."""

    def __init__(self, reading: int, child: int, interrupt: Interrupt) -> None:
        self._reading, self._child, self._interrupt = reading, child, interrupt
        self._received = b""
        self._exit_code: int | None = None

    def result(self, limit_s: float) -> Result:
        if not self._wait_for(len(_READY), time.monotonic() + _GET_READY_S):
            return Result("unusable")
        deadline = time.monotonic() + limit_s
        header = len(_READY) + _LENGTH.size
        if self._wait_for(header, deadline):
            (length,) = _LENGTH.unpack(self._received[len(_READY) : header])
            if self._wait_for(header + length, deadline):
                return pickle.loads(self._received[header : header + length])
        if self._exit_code is None:
            return Result("out of time")
        return Result("died", exit_code=self._exit_code)

    def _wait_for(self, length: int, deadline: float) -> bool:
        """Receive until ``length`` bytes are there; False if the child ended or the deadline passed."""
        while len(self._received) < length:
            ended = self._child_ended()
            if self._receive():
                continue
            if ended or self._interrupt.arrived or time.monotonic() >= deadline:
                return False
        return True

    def _receive(self) -> bool:
        readable, _, _ = select.select([self._reading], [], [], 0 if self._exit_code is not None else _POLL_S)
        chunk = os.read(self._reading, 1 << 16) if readable else b""
        self._received += chunk
        if readable and not chunk:
            time.sleep(_POLL_S)  # the other end is closed; the child's exit is a moment away
        return bool(chunk)

    def _child_ended(self) -> bool:
        if self._exit_code is None:
            # leave the child unreaped: its process number must stay taken until its group has been ended
            status = os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                self._exit_code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return self._exit_code is not None


def _end(child: int) -> None:
    """End the child and everything it started, and let the system forget it."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
