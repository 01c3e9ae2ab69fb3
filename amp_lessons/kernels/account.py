"""Make this process, a fork of root's parent, the equal of the process that asked for it.

All of it is read from the system about that process, nothing is taken from what it sends. What cannot be made
equal raises ``NotEqualError``: then the kernel starts by itself, as a child of whoever asked.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from amp_lessons.kernels.request import Peer

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 24, 38
_CAPABILITIES = 64

_NOT_ENFORCED = "Max file locks"  # since Linux 2.4.25
_LIMITS = {
    "Max cpu time": "CPU",
    "Max file size": "FSIZE",
    "Max data size": "DATA",
    "Max stack size": "STACK",
    "Max core file size": "CORE",
    "Max resident set": "RSS",
    "Max processes": "NPROC",
    "Max open files": "NOFILE",
    "Max locked memory": "MEMLOCK",
    "Max address space": "AS",
    "Max pending signals": "SIGPENDING",
    "Max msgqueue size": "MSGQUEUE",
    "Max nice priority": "NICE",
    "Max realtime priority": "RTPRIO",
    "Max realtime timeout": "RTTIME",
}


class NotEqualError(Exception):
    """A fork could not be made the equal of its asker; the message says in what."""


def take_over(peer: Peer) -> None:
    """Take on account, limits and surroundings of the process that asked. Raises NotEqualError or OSError."""
    status = _status(peer)
    _compare_surroundings(peer, status)
    _join_control_groups(peer)
    _take_limits(peer)
    os.umask(int(status["Umask"], 8))
    _drop_capabilities(int(status["CapBnd"], 16))
    _become(peer, [int(group) for group in status["Groups"].split()])
    if status["NoNewPrivs"] == "1":
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 1)  # or /proc/self would belong to root: there are no secrets in this memory
    if _status(peer) != status:
        raise NotEqualError("the process that asked is another one by now")


def _status(peer: Peer) -> dict[str, str]:
    """Return what the system says of the asker that lasts as long as it runs."""
    try:
        lines = Path(f"/proc/{peer.process}/status").read_text().splitlines()
        born = Path(f"/proc/{peer.process}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError as error:
        raise NotEqualError("the process that asked has gone") from error
    lasting = ("Umask", "Uid", "Gid", "Groups", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")
    fields = dict(line.split(":", 1) for line in lines)
    return {"born": born} | {name: fields.get(name, "").strip() for name in lasting}


def _compare_surroundings(peer: Peer, status: dict[str, str]) -> None:
    if set(status["Uid"].split()) != {str(peer.user)} or set(status["Gid"].split()) != {str(peer.group)}:
        raise NotEqualError("the process that asked has more than one account or group")
    if peer.user and int(status["CapPrm"], 16):
        raise NotEqualError("the process that asked has capabilities of its own")
    mine, theirs = Path("/proc/self"), Path(f"/proc/{peer.process}")
    if status["Seccomp"] != _status(Peer(os.getpid(), 0, 0))["Seccomp"]:
        raise NotEqualError("the process that asked runs under a filter of system calls")
    if not os.path.samefile(mine / "root", theirs / "root"):
        raise NotEqualError("the process that asked has another root folder")
    for name in _NAMESPACES:
        if os.readlink(mine / "ns" / name) != os.readlink(theirs / "ns" / name):
            raise NotEqualError(f"the process that asked is in a {name} namespace of its own")


def _join_control_groups(peer: Peer) -> None:
    """Join the control groups of the asker, so that its limits on memory and processors hold for the fork."""
    mine = Path("/proc/self/cgroup").read_text().splitlines()
    for line in Path(f"/proc/{peer.process}/cgroup").read_text().splitlines():
        if line not in mine:
            _, controllers, path = line.split(":", 2)
            try:
                (_mounted(controllers) / path.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
            except OSError as error:
                raise NotEqualError(f"its control group {path} cannot be joined: {error.strerror}") from error


def _mounted(controllers: str) -> Path:
    """Find where the control groups of these controllers are mounted; of none: those of version 2."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        names = controllers.split(",")
        if (kind == "cgroup2" and not controllers) or (
            kind == "cgroup" and all(name.removeprefix("name=") in options for name in names)
        ):
            return Path(before.split()[4])
    raise NotEqualError(f"the control groups of {controllers or 'version 2'} are mounted nowhere")


def _take_limits(peer: Peer) -> None:
    asker = Path(f"/proc/{peer.process}")
    for limit, values in _limits(asker / "limits"):
        if resource.getrlimit(limit) != values:
            resource.setrlimit(limit, values)
    adjustment = (asker / "oom_score_adj").read_text()
    if adjustment != Path("/proc/self/oom_score_adj").read_text():
        Path("/proc/self/oom_score_adj").write_text(adjustment)
    os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, peer.process))
    os.sched_setaffinity(0, os.sched_getaffinity(peer.process))


def _limits(path: Path) -> Iterator[tuple[int, tuple[int, int]]]:
    """Read the limits of a process where all may; to ask for them takes a capability that root may lack."""
    for line in path.read_text().splitlines()[1:]:
        name, soft, hard = line[:26].strip(), line[26:47].strip(), line[47:68].strip()
        if name != _NOT_ENFORCED:
            yield getattr(resource, f"RLIMIT_{_LIMITS[name]}"), (_number(soft), _number(hard))


def _number(word: str) -> int:
    return resource.RLIM_INFINITY if word == "unlimited" else int(word)


def _drop_capabilities(kept: int) -> None:
    """Let this process and what it starts never gain what the asker could never gain."""
    for capability in range(_CAPABILITIES):
        if not kept >> capability & 1:
            _prctl(_PR_CAPBSET_DROP, capability, tolerated=True)  # beyond the last one that there is


def _become(peer: Peer, groups: list[int]) -> None:
    os.setgroups(groups)
    os.setresgid(peer.group, peer.group, peer.group)
    os.setresuid(peer.user, peer.user, peer.user)
    if os.getresuid() != (peer.user,) * 3 or os.getresgid() != (peer.group,) * 3:
        raise NotEqualError("the system did not change the account")
    if peer.user and _can_be_root_again():
        raise NotEqualError("the system did not let go of root")


def _can_be_root_again() -> bool:
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        return False
    return True


def _prctl(option: int, value: int, *, tolerated: bool = False) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) and not tolerated:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value})")
