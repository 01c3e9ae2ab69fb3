"""What a run could leave behind: processes, sockets that listen, open descriptors."""

from __future__ import annotations

import time
from collections.abc import Callable

import psutil

_NOT_OURS: set[int] = set()


def remember_what_runs() -> None:
    """Keep out of sight what other tests of this process have started and still use: a browser, a server."""
    _NOT_OURS.update(each.pid for each in psutil.Process().children(recursive=True) if not is_host(each))


def processes(of: int | None = None) -> list[psutil.Process]:
    """Return what this process, or another, has started, but for the host, which may wait for a job."""
    return [each for each in everything(of) if not is_host(each)]


def everything(of: int | None = None) -> list[psutil.Process]:
    """Return what this process, or another, has started, the host as well."""
    started = psutil.Process(of).children(recursive=True)
    ours = [each for each in started if not _is_of_others(each)]
    return [each for each in ours if "resource_tracker" not in commandline(each)]


def _is_of_others(process: psutil.Process) -> bool:
    """Whether a process, or one that it comes from, was there before."""
    try:
        return any(each.pid in _NOT_OURS for each in (process, *process.parents()))
    except psutil.NoSuchProcess:
        return False


def is_host(process: psutil.Process) -> bool:
    """Whether it is the host itself, not a rank, which is a fork of it."""
    try:
        return "amp_lessons.parallel.rank" in commandline(process) and not is_host(process.parent())
    except psutil.NoSuchProcess:
        return False


def commandline(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def listening() -> list[str]:
    """Return the sockets of this process and its host that wait for somebody."""
    me = psutil.Process()
    connections = [c for each in (me, *me.children()) for c in each.net_connections()]
    return [str(c.laddr) for c in connections if c.status == psutil.CONN_LISTEN]


def soon(holds: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Whether something comes true within some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()
