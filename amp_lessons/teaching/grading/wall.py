"""Build walls around this process, then become the program that is to run between them.

It runs as a script, with the standard library alone, in a process that has no threads yet. Under Linux, by
root or where unprivileged user namespaces are allowed, the program gets a file system of its own, in which
there is Python, the course and an empty ``/tmp`` and nothing else, all read-only but the last; it sees no
other process, no network, and cannot gain privileges. Elsewhere only limits hold.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import socket
import struct
import sys
from typing import Any, NoReturn

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 0x00020000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PIDS, _NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
_READ_ONLY, _NO_SUID, _REMOUNT, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 32, 4096, 16384, 1 << 18
_DETACH = 2
_DIES_WITH_PARENT, _BOUNDING_DROP, _NO_NEW_PRIVILEGES = 1, 24, 38
_SIGKILL = 9
_SET_FLAGS_OF_INTERFACE, _UP_AND_RUNNING = 0x8914, 0x41
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/sys/devices/system/cpu",
)
_PLACES = (
    "/mnt",
    "/media",
    "/srv",
    "/var/tmp",
    "/tmp",
)  # one becomes the new root; what lies there is covered
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
_THREADS_EACH = 4  # the system counts threads where it limits processes
_ROOM_FOR_FILES = "size=256m,mode=1777"

_libc: Any = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Do what the options in ``sys.argv[1]``, JSON, say; ``python`` becomes ``module``."""
    options = json.loads(sys.argv[1])
    if sys.platform == "linux":
        _libc.prctl(_DIES_WITH_PARENT, _SIGKILL, 0, 0, 0)
    if options["apart"]:
        _set_apart(options)
    _limit(options)
    boot = "import gc, sys, runpy; gc.disable(); "  # until all is imported: a host turns it on again
    boot += f"sys.path[:0] = {options['path']!r}; sys.argv[1:] = {options['arguments']!r}; "
    boot += f"runpy.run_module({options['module']!r}, run_name='__main__', alter_sys=False)"
    os.chdir(options["home"])
    os.execve(options["python"], [options["python"], "-I", "-c", boot], options["environment"])


def _set_apart(options: dict[str, Any]) -> None:
    """Go on in namespaces of its own, as their first process, while this one waits for its end."""
    user, group = os.geteuid(), os.getegid()
    spaces = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_PIDS | _NEW_NETWORK | (_NEW_USER if user else 0)
    _must(_libc.unshare(spaces))
    if user:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    first = os.fork()
    if first:
        _wait_for(first)
    _libc.prctl(_DIES_WITH_PARENT, _SIGKILL, 0, 0, 0)
    _raise_loopback()
    _furnish(options["seen"], options["hidden"], options["shown"])
    _give_up_privileges(None if user else options["user"])


def _wait_for(child: int) -> NoReturn:
    """Close what the child alone is to hold, and end as it does."""
    os.closerange(3, 256)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _raise_loopback() -> None:
    """Bring the loopback interface up, the only one: ranks of one exercise reach each other over it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS_OF_INTERFACE, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))


def _furnish(seen: list[str], hidden: list[str], shown: list[str]) -> None:
    """Make a new root with what is to be seen, read-only, and leave the old one."""
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    root = next(
        path for path in _PLACES if os.path.isdir(path) and not any(_is_in(path, each) for each in seen)
    )
    _mount("tmpfs", root, "tmpfs", _NO_SUID, "size=1m,mode=755")
    for path in ("/tmp", "/dev/shm", "/proc", "/old"):
        os.makedirs(root + path)
    for path in ("/tmp", "/dev/shm"):
        _mount("tmpfs", root + path, "tmpfs", _NO_SUID, _ROOM_FOR_FILES)
    for path in (*_SYSTEM, *_DEVICES, *seen):
        _show(path, root)
    for path in hidden:
        if os.path.isdir(root + path):
            _hide(path, root, [each for each in shown if each.startswith(path + os.sep)])
    _mount("proc", root + "/proc", "proc", _NO_SUID)
    _must(_libc.pivot_root(root.encode(), (root + "/old").encode()))
    os.chdir("/")
    _must(_libc.umount2(b"/old", _DETACH))
    os.rmdir("/old")
    _mount(None, "/", None, _REMOUNT | _BIND | _READ_ONLY)


def _hide(path: str, root: str, shown: list[str]) -> None:
    """Cover a package with an empty one, in which these modules of it alone are left."""
    texts = {}
    for each in shown:
        with open(root + each, "rb") as file:
            texts[each] = file.read()
    _mount("tmpfs", root + path, "tmpfs", _NO_SUID, "size=1m,mode=755")
    for each, text in texts.items():
        folder = os.path.dirname(root + each)
        os.makedirs(folder, exist_ok=True)
        while len(folder) >= len(root + path):
            os.close(os.open(os.path.join(folder, "__init__.py"), os.O_CREAT, 0o644))
            folder = os.path.dirname(folder)
        with open(root + each, "wb") as file:
            file.write(text)
    _mount(None, root + path, None, _REMOUNT | _BIND | _READ_ONLY)


def _is_in(folder: str, path: str) -> bool:
    return os.path.commonpath([folder, os.path.realpath(path)]) == folder


def _show(path: str, root: str) -> None:
    target = root + path
    if not os.path.exists(path) or os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT))
    _mount(path, target, None, _BIND | _RECURSIVE)
    if not path.startswith("/dev/"):
        _make_read_only(target)


def _make_read_only(target: str) -> None:
    """By ``mount_setattr``, which takes along what is mounted below; older kernels know the top alone."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    if _libc.syscall(442, -100, target.encode(), 0x8000, attributes, len(attributes)) != 0:
        _mount(None, target, None, _REMOUNT | _BIND | _READ_ONLY)


def _give_up_privileges(user: int | None) -> None:
    """Become ``user``; None stays who it is, where the files of the course are nobody else's to read."""
    for capability in range(64):
        _libc.prctl(_BOUNDING_DROP, capability, 0, 0, 0)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _must(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _libc.prctl(_DIES_WITH_PARENT, _SIGKILL, 0, 0, 0)  # a change of user takes it away


def _limit(options: dict[str, Any]) -> None:
    limits = [("RLIMIT_CORE", 0), ("RLIMIT_FSIZE", 2**28), ("RLIMIT_NOFILE", 512)]
    limits += [("RLIMIT_CPU", int(options["cpu_s"])), ("RLIMIT_DATA", int(options["memory_bytes"]))]
    if options["apart"] and options["user"]:
        limits.append(("RLIMIT_NPROC", _THREADS_EACH * int(options["processes"])))
    for name, most in limits:
        number = getattr(resource, name, None)
        if number is not None:
            _, ceiling = resource.getrlimit(number)
            most = most if ceiling == resource.RLIM_INFINITY else min(most, ceiling)
            resource.setrlimit(number, (most, most))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word else None for word in (source, target, kind)]
    _must(_libc.mount(*words, ctypes.c_ulong(flags), data.encode() if data else None), target)


def _must(answer: int, what: str = "") -> None:
    if answer != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), what)


if __name__ == "__main__":
    main()
