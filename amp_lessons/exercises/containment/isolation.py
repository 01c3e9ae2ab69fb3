"""Run a whole check where nothing it does can reach the notebook's kernel.

On Linux without a GPU the check runs in a forked child: it sees the learner's objects exactly as they are in
the notebook, closures included, and an endless loop in C, ``os._exit`` or a replaced method of PyTorch ends
with it. A CUDA context does not survive a fork, and Windows and macOS have no safe one, so there the check
runs in this process, held by ``sandbox`` alone: everything is still contained but a loop in C, a captured
reference to ``os._exit``, and loops that catch every exception, that of the user's interrupt included. Both
ways run the same code on the same inputs and come to the same verdict.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Literal, NoReturn

import torch

from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.containment.process_state import neutral
from amp_lessons.exercises.containment.time_limit import Deadline, Interrupt, TimeUp, interrupts_held

Way = Literal["auto", "fork", "inprocess"]
Ending = Literal["finished", "out of time", "died", "unusable"]

_READY = b"ready"
_GET_READY_S = 2.0
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
    """Run ``job`` within ``limit_s`` seconds, in a child process where possible; return how it ended.

    The limit is that of ``time_limit.Deadline``: of the processor's time, and a longer one by the clock. The
    value of ``job`` must be picklable. Raises only KeyboardInterrupt, when the user interrupts.
    """
    load_what_pytorch_loads_late()
    if way == "inprocess" or sandbox.active() or (way == "auto" and not can_fork()):
        return run_in_process(job, limit_s)
    result = _run_in_child(job, limit_s)
    return run_in_process(job, limit_s) if result.ending == "unusable" else result


def run_in_process(job: Callable[[], Any], limit_s: float) -> Result:
    """Run ``job`` here, with what ``sandbox`` can hold."""
    ending: Ending = "finished"
    value = None
    with sandbox.contained(limit_s) as session:
        try:
            value = job()
        except TimeUp:
            ending = "out of time"
    output = session.output
    return Result(ending, value, session.stopped_at, output.text(), output.characters)


def load_what_pytorch_loads_late() -> None:
    """Make the first optimizer of this process: it imports torch._dynamo, which takes seconds, once."""
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


def _run_in_child(job: Callable[[], Any], limit_s: float) -> Result:
    interrupt = Interrupt()
    receiving, sending = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_work, args=(job, limit_s, sending))
    with interrupts_held(interrupt), receiving:
        with sending, warnings.catch_warnings():
            # Python 3.12 warns that a fork of a process with threads may lock up; the child proves it did not
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        try:
            return _result(child, receiving, limit_s, interrupt)
        finally:
            _end(child)


def _work(job: Callable[[], Any], limit_s: float, sending: Connection) -> NoReturn:
    """Be the child: prove that PyTorch works, run the job, send its result, end without any clean-up."""
    child = os.getpid()
    leave = os._exit  # the job runs with os._exit replaced
    try:
        # the user's interrupt is for the parent, and whatever the learner starts can be ended together
        os.setsid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _make_pytorchs_threads_anew()
        _prove_that_pytorch_works()
        sending.send_bytes(_READY)
        _silence_file_descriptors()
        # the reserve lets the child say where the learner's code was, before the parent ends it; and plain
        # pickles, because multiprocessing's leave tensors in shared memory, which ends with the child
        result = pickle.dumps(run_in_process(job, limit_s * (1 - _RESERVE)))
        if os.getpid() == child:  # a copy that the learner's code made of this process has nothing to report
            sending.send_bytes(result)
        leave(0)
    except BaseException:
        leave(70)


def _make_pytorchs_threads_anew() -> None:
    """Replace the pool of threads, which the fork left behind, before two threads of the job do so at once.

    PyTorch does it when a thread first counts its threads, without a lock: of two, one may find no pool
    (``caffe2/utils/threadpool/pthreadpool-cpp.cc``).
    """
    torch.set_num_threads(torch.get_num_threads())


def _prove_that_pytorch_works() -> None:
    with neutral():
        weight = torch.ones(4, 4, requires_grad=True)
        (torch.ones(4, 4) @ weight).sum().backward()


def _silence_file_descriptors() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def _result(child: BaseProcess, receiving: Connection, limit_s: float, interrupt: Interrupt) -> Result:
    """Receive a sign of life from the child, then its result."""
    if _heard(child, receiving, _GET_READY_S, interrupt) is None:
        return Result("unusable")
    result = _heard(child, receiving, limit_s, interrupt)
    if result is not None:
        return pickle.loads(result)
    child.join(_POLL_S)  # what closed the pipe may still be ending
    return Result("out of time") if child.exitcode is None else Result("died", exit_code=child.exitcode)


def _heard(child: BaseProcess, receiving: Connection, limit_s: float, interrupt: Interrupt) -> bytes | None:
    """Receive the child's next message; None if it ends, the time is over, or the user interrupts."""
    deadline = Deadline(limit_s, lambda: _processor_s_of(child))
    while not (interrupt.arrived or deadline.passed):
        ready = wait([receiving, child.sentinel], _POLL_S)
        if receiving in ready:
            with contextlib.suppress(EOFError, OSError):  # it ended before, or while, it sent anything
                return receiving.recv_bytes()
        if ready:
            return None
    return None


def _processor_s_of(child: BaseProcess) -> float:
    """Return the seconds of processor time of a child, all of its threads together; 0 once it has ended.

    Linux numbers the clock of a process like this (``man clock_getcpuclockid``); the child cannot be asked,
    for it may be in a loop in C.
    """
    assert child.pid is not None
    try:
        return time.clock_gettime((~child.pid << 3) | 2)
    except OSError:
        return 0.0


def _end(child: BaseProcess) -> None:
    """End the child and everything it started, and let the system forget it."""
    assert child.pid is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.join()
    child.close()
