"""The work of a rank: make itself at home, join the others, call the function, report.

It runs in a process that the host has just forked, and never returns to the host's own code.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import linecache
import os
import pickle
import random
import signal
import struct
import sys
import threading
import traceback
from datetime import timedelta
from typing import Any, NoReturn

import cloudpickle
import torch
import torch.distributed as dist

from amp_lessons.parallel.job import Job

RETURNED, RAISED = b"+", b"-"
ASK_WHERE = signal.SIGUSR1  # answered with a traceback, even by a rank that hangs in C
_PR_SET_PDEATHSIG = 1
_AFTER_THE_HOST_S = 60  # the host's limit comes first: it can say what every rank was doing
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def be_rank(job: Job, rank: int, host: int, report: int, output: int) -> NoReturn:
    """Run ``job`` as rank ``rank`` in this process, and never return.

    ``host`` is the host's process id, ``report`` and ``output`` are the descriptors of the pipes to it.
    """
    try:
        _end_with(host)
        _redirect_output(output, report)
        message = _message(job, rank)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        _send(report, message)
        # It stays until the host ends it: a rank that left would break a collective that others are in.
        while True:
            signal.pause()
    finally:
        os._exit(70)


def _end_with(host: int) -> None:
    """Let this process end when its host does, whatever ends it."""
    os.setsid()  # so that what it starts can be ended together with it
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(host,), daemon=True).start()
    if os.getppid() != host:
        os._exit(70)


def _watch(host: int) -> None:
    while os.getppid() == host:
        threading.Event().wait(0.5)
    os._exit(70)


def _redirect_output(output: int, report: int) -> None:
    """Redirect both standard streams to ``output``, C code's too; the stack of a crash goes to ``report``."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is lost at a kill is a line
    faulthandler.enable(report, all_threads=False)
    faulthandler.register(ASK_WHERE, report, all_threads=False)


def _message(job: Job, rank: int) -> bytes:
    """Return the report: the result, pickled, or what went wrong."""
    try:
        _restore_surroundings(job, rank)
        fn, args = pickle.loads(job.payload)
        _join(job, rank)
        result = fn(*args)
    except BaseException as error:
        return RAISED + _describe(error).encode("utf-8", "replace")
    try:
        return RETURNED + cloudpickle.dumps(result)
    except BaseException as error:
        kind = type(result).__name__
        why = _describe(error).removeprefix("raised ")
        return RAISED + f"returned a {kind}, which cannot be pickled: {why}".encode("utf-8", "replace")


def _restore_surroundings(job: Job, rank: int) -> None:
    """Restore the notebook's environment, folder and path, and set the variables that torchrun would set."""
    os.environ.clear()
    os.environ.update(job.environment)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    os.environ.update(WORLD_SIZE=str(job.world_size), LOCAL_WORLD_SIZE=str(job.world_size))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)  # no name server, no firewall in the way
    os.chdir(job.working_folder)
    sys.path[:], sys.argv[:] = job.path, job.arguments
    for name, lines in job.cells.items():
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    random.seed()  # else all ranks of all runs would draw what the host would have drawn
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    torch.set_num_threads(job.threads_per_rank)


def _join(job: Job, rank: int) -> None:
    store = dist.FileStore(os.path.join(job.folder, "store"), job.world_size)
    limit = timedelta(seconds=job.timeout_s + _AFTER_THE_HOST_S)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=job.world_size, timeout=limit)


def _describe(error: BaseException) -> str:
    """Return what was raised in a line, then its traceback without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    name = type(error).__name__
    try:
        lines = "".join(traceback.format_exception(type(error), error, trace))
        first = str(error).strip().partition("\n")[0]
    except BaseException:  # one of the author's own, which cannot put itself into words
        return f"raised {name}\n"
    return f"raised {name}{': ' * bool(first)}{first}\n{lines}"


def _send(report: int, message: bytes) -> None:
    remaining: Any = memoryview(struct.pack("!Q", len(message)) + message)
    while remaining:
        remaining = remaining[os.write(report, remaining) :]
