"""Control groups: what all processes of a learner's may take together, enforced by the kernel.

Used where somebody has given us a place for them, and nowhere else: a group belongs to whoever made it
(systemd, a container's manager), and what we put there uninvited would escape their accounting.

* Version 2: the group this process is in, if systemd has delegated it (``Delegate=yes`` in the unit).
* Either version: the group that is named, below which we may write.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "cpu", "pids")
_PERIOD_US = 100_000


@dataclass(frozen=True)
class Place:
    """Where learners' groups are made: a folder for each controller, all the same one in version 2."""

    folders: dict[str, Path]
    version: int

    def group(self, name: str) -> Group:
        """Return the group of a learner, which may not be there yet."""
        return Group({controller: folder / name for controller, folder in self.folders.items()}, self.version)


@dataclass(frozen=True)
class Group:
    """One learner's group."""

    folders: dict[str, Path]
    version: int

    def make(self, memory_bytes: int | None, cpus: float | None, tasks: int | None) -> None:
        """Make the group and set its limits; one that is there already gets these limits."""
        for folder in self._distinct():
            folder.mkdir(exist_ok=True)
        for controller, file, value in _settings(self.version, memory_bytes, cpus, tasks):
            if controller in self.folders:
                (self.folders[controller] / file).write_text(value)

    def enter(self) -> None:
        """Put this process, and all that it will start, into the group."""
        for folder in self._distinct():
            (folder / "cgroup.procs").write_text(str(os.getpid()))

    def processes(self) -> set[int]:
        """List the processes in the group."""
        found: set[int] = set()
        for folder in self._distinct():
            with suppress(OSError):
                found |= {int(pid) for pid in (folder / "cgroup.procs").read_text().split()}
        return found

    def killed_for_memory(self) -> int:
        """Count the processes that the kernel has ended because the group had filled its memory."""
        if "memory" not in self.folders:
            return 0
        file = "memory.events" if self.version == 2 else "memory.oom_control"
        with suppress(OSError):
            counts = dict(line.split() for line in (self.folders["memory"] / file).read_text().splitlines())
            return int(counts.get("oom_kill", 0))
        return 0

    def remove(self, timeout_s: float = 5.0) -> None:
        """End whatever is left in the group, and remove it."""
        until = time.monotonic() + timeout_s
        while (left := self.processes()) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, 9)
            time.sleep(0.02)
        for folder in self._distinct():
            with suppress(FileNotFoundError):
                folder.rmdir()

    def _distinct(self) -> Sequence[Path]:
        return list(dict.fromkeys(self.folders.values()))


def place(named: str = "") -> Place | None:
    """Return where learners' groups may be made: below the group that is ``named``, else a delegated one."""
    if named and (ROOT / "cgroup.controllers").exists():
        return _version_2(ROOT / named.strip("/"))
    if named:
        return _version_1(named.strip("/"))
    own = _own_group()
    return _version_2(own) if own is not None and _delegated(own) else None


def _version_1(named: str) -> Place | None:
    folders = {}
    for controller in CONTROLLERS:
        folder = ROOT / controller / named
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder / "cgroup.procs", os.W_OK):
                folders[controller] = folder
    return Place(folders, version=1) if folders else None


def _version_2(group: Path) -> Place:
    """Prepare a group: a group that has members cannot have groups with limits, so its own move into one."""
    staff, learners = group / "staff", group / "learners"
    for folder in (group, staff, learners):
        folder.mkdir(exist_ok=True)
    for pid in (group / "cgroup.procs").read_text().split():
        with suppress(OSError):  # it has ended meanwhile
            (staff / "cgroup.procs").write_text(pid)
    offered = set((group / "cgroup.controllers").read_text().split())
    wanted = [controller for controller in CONTROLLERS if controller in offered]
    for folder in (group, learners):
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in wanted))
    return Place(dict.fromkeys(wanted, learners), version=2)


def _own_group() -> Path | None:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::") and (ROOT / "cgroup.controllers").exists():
            own = ROOT / line[3:].strip("/")
            return own.parent if own.name == "staff" else own
    return None


def _delegated(group: Path) -> bool:
    """Say whether systemd has left a group to us; it marks those."""
    for mark in ("trusted.delegate", "user.delegate"):
        with suppress(OSError):
            return os.getxattr(group, mark) == b"1"
    return False


def _settings(
    version: int, memory_bytes: int | None, cpus: float | None, tasks: int | None
) -> list[tuple[str, str, str]]:
    """Return controller, file and value of each limit."""
    found = []
    quota = int(cpus * _PERIOD_US) if cpus else None
    if memory_bytes:
        file = "memory.max" if version == 2 else "memory.limit_in_bytes"
        found.append(("memory", file, str(memory_bytes)))
    if quota and version == 2:
        found.append(("cpu", "cpu.max", f"{quota} {_PERIOD_US}"))
    elif quota:
        found += [("cpu", "cpu.cfs_period_us", str(_PERIOD_US)), ("cpu", "cpu.cfs_quota_us", str(quota))]
    if tasks:
        found.append(("pids", "pids.max", str(tasks)))
    return found
