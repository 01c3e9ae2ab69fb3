"""Start a program behind ``wall``, watch over it, and end it with all that it has started."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import amp_lessons
from amp_lessons._base.worker.host import ENVIRONMENT, Host, HostEndedError
from amp_lessons.teaching.grading import frames

_PACKAGE = Path(amp_lessons.__file__).resolve().parent
_WALL = Path(__file__).with_name("wall.py")
_ANSWERS = 8 * 2**20  # the longest answer that is read, in bytes
_LOOK_EVERY_S = 0.2
_ENDING_S = 5.0
_STRANGERS = range(1_000_000_000, 2_000_000_000)  # user ids that nobody has


@dataclass(frozen=True)
class Limits:
    """What a program may take: memory of all its processes, how many they are, how long it may start."""

    memory_bytes: int = 4 * 2**30
    processes: int = 64
    start_s: float = 120.0


class EndedError(Exception):
    """The program behind the wall has no answer: its text says what became of it."""


class _Watch:
    """Ends a program behind the wall, and all that it has started: on request, or where that is too much."""

    def __init__(self, process: subprocess.Popen[bytes], limits: Limits) -> None:
        self.reason = ""
        self._process, self._limits, self._apart = process, limits, surroundings().apart
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the program and everything it has started."""
        self._over.set()
        self._end("")
        self._thread.join()

    def _watch(self) -> None:
        """End it where all its processes together take more than one alone could be forbidden."""
        while not self._over.wait(_LOOK_EVERY_S) and self._process.poll() is None:
            members = list(_tree(self._process.pid))
            if len(members) > self._limits.processes + 2:
                self._end(f"it started more than {self._limits.processes} processes")
            elif sum(map(_resident_bytes, members)) > self._limits.memory_bytes:
                self._end(f"it took more than {self._limits.memory_bytes / 2**30:g} GiB of memory")

    def _end(self, reason: str) -> None:
        self.reason = self.reason or reason
        if self._process.poll() is not None:
            return
        for pid in list(_tree(self._process.pid))[1:]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if self._apart:  # with the first process of a name space all others end, and then what waited for it
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDING_S)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Walled:
    """A running program, which is asked and answers in ``frames``; what it prints goes nowhere."""

    def __init__(self, module: str, limits: Limits, *, most_s: float) -> None:
        """Start ``module``, that has ``most_s`` seconds of processor time on each core, and no longer."""
        to_it, self._outgoing = os.pipe()
        self._incoming, from_it = os.pipe()
        self._home = None if surroundings().apart else tempfile.mkdtemp(prefix="amp-lessons-grading-")
        arguments = [str(to_it), str(from_it)]
        options = _options(module, limits, most_s, arguments, False, self._home)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_WALL), json.dumps(options)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(to_it, from_it),
                start_new_session=True,
                cwd="/",
            )
        finally:
            os.close(to_it)
            os.close(from_it)
        self._watch = _Watch(self._process, limits)

    def send(self, message: Any) -> None:
        """Send a message. Raises EndedError where nobody reads it any more."""
        try:
            frames.write(self._outgoing, message)
        except OSError as error:
            raise EndedError(self._became()) from error

    def receive(self, limit_s: float) -> Any:
        """Return its next message. Raises EndedError where none comes within ``limit_s`` seconds."""
        try:
            return frames.read(self._incoming, _ANSWERS, limit_s)
        except TimeoutError:
            raise EndedError(f"no answer came within {limit_s:g} seconds") from None
        except (frames.BrokenFrameError, OSError) as error:
            raise EndedError(self._became() or str(error)) from error

    def close(self) -> None:
        """End it and everything it has started."""
        self._watch.close()
        for descriptor in (self._outgoing, self._incoming):
            os.close(descriptor)
        if self._home:
            shutil.rmtree(self._home, ignore_errors=True)

    def __enter__(self) -> Walled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _became(self) -> str:
        """Explain why it has no answer, once that is known."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        return self._watch.reason or (
            "it closed its way to answer" if code is None else f"it ended, with status {code}"
        )


def _options(
    module: str,
    limits: Limits,
    most_s: float,
    arguments: list[str],
    hide_exercises: bool,
    private_home: str | None,
) -> dict[str, Any]:
    here = surroundings()
    home = private_home or "/tmp"
    return {
        "apart": here.apart,
        "seen": [sys.base_prefix, sys.prefix, *_packages(), str(_PACKAGE)],
        "hidden": [str(_PACKAGE / "course" / room) for room in ("exercises", "interview")]
        if hide_exercises
        else [],
        "shown": [str(each) for each in (_PACKAGE / "course" / "exercises").rglob("*_there.py")],
        "user": secrets.choice(_STRANGERS) if here.as_stranger else None,
        "memory_bytes": limits.memory_bytes,
        "processes": limits.processes,
        "cpu_s": max(1.0, most_s * (os.cpu_count() or 1)),
        "path": [str(_PACKAGE.parent), *_packages()],
        "arguments": arguments,
        "module": module,
        "home": home,
        "python": sys.executable,
        "environment": _environment(home),
    }


@contextlib.contextmanager
def walled_host(limits: Limits, most_s: float, preload: Sequence[str] = ()) -> Iterator[Host]:
    """Host workers behind the wall for ``most_s`` processor seconds, with these modules imported.

    Of the exercises nothing is there but what has to run beside an attempt. Raises EndedError where it took
    too much.
    """
    home = None if surroundings().apart else tempfile.mkdtemp(prefix="amp-lessons-grading-")

    def command(descriptor: int) -> list[str]:
        arguments = [f"{descriptor}", "amp_lessons.course.exercises.bed_there", "cloudpickle", *preload]
        options = _options("amp_lessons._base.worker.serving", limits, most_s, arguments, True, home)
        return [sys.executable, "-I", "-S", str(_WALL), json.dumps(options)]

    host = Host(command=command)
    watch = _Watch(host.process, limits)
    try:
        yield host
    except HostEndedError as error:
        raise EndedError(watch.reason or str(error)) from error
    finally:
        watch.close()
        host.close()
        if home:
            shutil.rmtree(home, ignore_errors=True)


def _packages() -> list[str]:
    """List where packages are imported from; the standard library finds itself."""
    return [
        path for path in sys.path if path.endswith(("site-packages", "dist-packages")) and os.path.isdir(path)
    ]


def _environment(home: str) -> dict[str, str]:
    """Nothing of the grader's own: no token, no progress. One thread, for several attempts run at once."""
    return {
        **ENVIRONMENT,
        "PATH": "/usr/bin:/bin",
        "HOME": home,
        "USER": "learner",
        "AMP_LESSONS_HOME": f"{home}/progress",
        "MPLBACKEND": "agg",
    }


@dataclass(frozen=True)
class Surroundings:
    """What this machine allows: ``apart``, own files, processes and network; ``as_stranger``, an own user."""

    apart: bool
    as_stranger: bool

    def __str__(self) -> str:
        if not self.apart:
            return (
                "This machine allows no namespaces: learners' code ran under limits of time and memory, but "
                "with the network, and with what your account may read and write. Grade on Linux, as root or "
                "where unprivileged user namespaces are allowed, to keep it from them."
            )
        whose = "as a user that nobody else is" if self.as_stranger else "without privileges"
        return (
            f"Learners' code ran {whose}, without network, with no file to see but Python's and the "
            "course's, and no process but its own."
        )


@functools.cache
def surroundings() -> Surroundings:
    """Try what this machine allows, once."""
    if sys.platform != "linux":
        return Surroundings(False, False)
    root = os.geteuid() == 0
    for apart, stranger in ((True, root), (True, False)):
        if _works(apart, stranger):
            return Surroundings(apart, stranger)
    return Surroundings(False, False)


def _works(apart: bool, as_stranger: bool) -> bool:
    options = {
        "apart": apart,
        "seen": [sys.base_prefix, sys.prefix, *_packages(), str(_PACKAGE)],
        "hidden": [],
        "shown": [],
        "user": _STRANGERS[0] if as_stranger else None,
        "memory_bytes": 2**30,
        "processes": 16,
        "cpu_s": 20,
        "path": [str(_PACKAGE.parent), *_packages()],
        "arguments": [],
        "module": "amp_lessons.teaching.grading.frames",
        "home": "/tmp",
        "python": sys.executable,
        "environment": _environment("/tmp"),
    }
    command = [sys.executable, "-I", "-S", str(_WALL), json.dumps(options)]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return ended.returncode == 0


def _tree(pid: int) -> Iterator[int]:
    """Yield ``pid`` and its descendants, as far as the system tells them."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                for child in file.read().split():
                    yield from _tree(int(child))


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
