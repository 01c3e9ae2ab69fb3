"""What a machine is, what it has left, and what processes of it take, read from Linux's /proc."""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SAMPLE_S = 0.5


def available_mib() -> float:
    """Return what new processes may take before the machine swaps."""
    return _meminfo("MemAvailable")


def total_mib() -> float:
    """Return the machine's memory."""
    return _meminfo("MemTotal")


def _meminfo(name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def cpu() -> str:
    """Name the processor."""
    found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def version(package: str) -> str:
    """Return a package's version; empty where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def share_mib(pid: int) -> float:
    """Return what a process takes of memory: its own, and its share of what several have (PSS); 0 if gone."""
    try:
        found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0


def shares_mib(pids: Iterable[int]) -> float:
    """Return what several processes take together."""
    return sum(map(share_mib, pids))


def family(pid: int) -> list[int]:
    """List a process and all that it has started, and that those have."""
    found, children = [], _children()
    ahead = [pid] if Path(f"/proc/{pid}").exists() else []
    while ahead:
        found.append(ahead.pop())
        ahead += children.get(found[-1], [])
    return found


def _children() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            fields = _stat(int(entry))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry))
    return children


def processor_s(pid: int) -> float:
    """Return the processor time of a process, with that of children it has waited for; 0 if it is gone."""
    fields = _stat(pid)
    return sum(map(int, fields[11:15])) * _TICK_S if fields else 0.0


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def busy_s() -> float:
    """Return the processor time of all processes of this machine since it began."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, softirq = fields[:7]
    return (user + nice + system + irq + softirq) * _TICK_S


@dataclass
class Peak:
    """The most that a process and its family took, seen twice a second while ``with`` lasts."""

    pid: int
    mib: float = 0.0

    def __enter__(self) -> Peak:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.mib = max(self.mib, shares_mib(family(self.pid)))
            if self._ended.wait(_SAMPLE_S):
                return


def parent(pid: int) -> int | None:
    """Return the number of the process that has started this one; None if it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def command(pid: int) -> str:
    """Return the command line of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


class Watch:
    """A stopwatch that also says how much of the processors went to processes that are not ours."""

    def __init__(self) -> None:
        self._begun, self._busy_s, self._ours_s = time.monotonic(), busy_s(), _ours_s()

    def ended(self) -> tuple[float, float]:
        """Return the seconds since it was made, and the others' share of all processors in them, 0 to 1."""
        seconds = time.monotonic() - self._begun
        others_s = busy_s() - self._busy_s - (_ours_s() - self._ours_s)
        return round(seconds, 1), round(min(1.0, max(0.0, others_s / (seconds * cores()))), 2)


def _ours_s() -> float:
    """Return the processor time of this process and all that it has started, at any depth."""
    return sum(map(processor_s, family(os.getpid())))
