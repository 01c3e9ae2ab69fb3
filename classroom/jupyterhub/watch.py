"""Where no control group adds up what a learner's processes take together, the hub does it itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

# Gone meanwhile, or not ours to look at: neither is a learner's process that could be ended.
_PASSED_OVER = (psutil.NoSuchProcess, psutil.AccessDenied)


def processes_of(uid: int) -> list[psutil.Process]:
    """List the processes that run under an account."""
    return [each for each in psutil.process_iter() if _uid(each) == uid]


def processes_below(pid: int) -> list[psutil.Process]:
    """List a process and all that it has started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except _PASSED_OVER:
        return []


def end_the_largest(processes: Iterable[psutil.Process], limit_bytes: int, spare: int) -> int:
    """End the largest processes until the others take at most ``limit_bytes``; return how many were ended.

    ``spare`` is the learner's server: without it they could not even read why.
    """
    candidates = list(processes)
    if sum(map(_at_most, candidates)) <= limit_bytes:
        return 0
    sizes = sorted(((_share(each), each.pid, each) for each in candidates), reverse=True)
    total, ended = sum(size for size, _, _ in sizes), 0
    for size, pid, process in sizes:
        if total <= limit_bytes:
            break
        if pid != spare:
            with suppress(*_PASSED_OVER):
                process.kill()
                total, ended = total - size, ended + 1
    return ended


def _at_most(process: psutil.Process) -> int:
    """Return quickly what a process takes at most: memory that it shares with others is counted whole."""
    with suppress(OSError):
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        return sum(
            int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:"))
        )
    return 0


def _share(process: psutil.Process) -> int:
    """Return what a process takes, of shared memory its share: slower, and true for forked kernels too."""
    with suppress(*_PASSED_OVER):
        return int(process.memory_full_info().pss)
    return 0


def _uid(process: psutil.Process) -> int:
    with suppress(*_PASSED_OVER):
        return int(process.uids().real)
    return -1
