"""The system's wall between a submission and the teacher's account: Docker, Podman or bubblewrap.

Behind it there is Python, the course without its answers and an empty ``/tmp``: no other file of this
machine, no other process, no network, no privilege. What is let in stands here; how it holds is the wall's.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import amp_lessons
from amp_lessons._base.worker.host import ENVIRONMENT, Host, HostEndedError
from amp_lessons._base.worker.serving import resident_bytes

_PACKAGE = Path(amp_lessons.__file__).resolve().parent
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
_PACKAGES = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
_ROOMS = ("exercises", "interview")  # of which nothing is to be seen but what has to run beside an attempt
_HIDDEN = [  # in a course that is installed beside this one, too
    package / "course" / room
    for package in {_PACKAGE, *(Path(path, "amp_lessons") for path in _PACKAGES)}
    for room in _ROOMS
    if (package / "course" / room).exists()
]
_ROOM_FOR_FILES = 256 * 2**20  # bytes: files in memory are nobody's process
_PROCESSORS = "/sys/devices/system/cpu"  # where PyTorch asks what they can do
_IMAGE = "amp-lessons-empty"
_THREADS_EACH = 4  # the system counts threads where it limits processes
_LOOK_EVERY_S, _START_S = 0.2, 60.0


@dataclass(frozen=True)
class Limits:
    """What an attempt may take: memory of all its processes, how many they are, how long it may start."""

    memory_bytes: int = 4 * 2**30
    processes: int = 64
    start_s: float = 120.0


class EndedError(Exception):
    """What is behind the wall has no answer: its text says what became of it."""


@dataclass(frozen=True)
class Wall:
    """A wall by its program: "docker", "podman" or "bwrap"; "" is none."""

    program: str

    def __str__(self) -> str:
        if not self.program:
            return (
                "Nothing stands between a submission and your account: this machine has no Docker, Podman or "
                "bubblewrap (0.7 or newer) that works for you. Learners' code runs under limits of time and "
                "memory, but with the network, and with what your account may read and write."
            )
        return (
            f"Learners' code ran behind a wall of {self.program}: without network and privileges, with no "
            "file to see but Python's and the course's, and no process but its own."
        )

    @property
    def is_container(self) -> bool:
        """Whether a container is started, which inherits nothing."""
        return self.program in ("docker", "podman")

    def words(self, limits: Limits, home: str) -> list[str]:
        """Return the words of a command line before those of the program that is to run behind it.

        ``home`` is a folder as ``_home`` makes it, which without a wall is the program's own.
        """
        words: list[str] = []
        if self.program == "bwrap":
            words = _bubblewrap(limits, home)
        elif self.is_container:
            words = _container(self.program, limits, home)
        at = "/tmp" if self.program else home
        # Nothing of the grader's own: no token, no progress.
        variables = {**ENVIRONMENT, "PATH": "/usr/bin:/bin", "HOME": at, "USER": "learner"}
        variables |= {"AMP_LESSONS_HOME": f"{at}/progress", "MPLBACKEND": "agg"}
        return [*words, "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items())]

    def works(self) -> bool:
        """Whether Python and the course can be had behind it, for whoever grades."""
        if not shutil.which(self.program):
            return False
        with _home() as home:
            if self.is_container and not _ended_well([self.program, "image", "inspect", _IMAGE]):
                _ended_well([self.program, "import", "-", _IMAGE], bytes(10240))  # an archive of no files
            return _ended_well([*self.words(Limits(), home), *_python("import amp_lessons")])


def _seen(home: str) -> dict[str, str]:
    """Return what is to be seen, all of it read-only: which path is there in the place of which."""
    wanted = (*_SYSTEM, sys.base_prefix, sys.prefix, *_PACKAGES, str(_PACKAGE))
    seen = {path: path for path in wanted if os.path.exists(path)}
    return seen | {str(each): f"{home}/{each.name}" for each in _HIDDEN}


def _bubblewrap(limits: Limits, home: str) -> list[str]:
    words = ["bwrap", "--unshare-all", "--cap-drop", "ALL", "--as-pid-1", "--die-with-parent"]
    words += ["--proc", "/proc", "--dev", "/dev", "--ro-bind-try", _PROCESSORS, _PROCESSORS]
    for path in ("/tmp", "/dev/shm"):
        words += ["--size", f"{_ROOM_FOR_FILES}", "--tmpfs", path]
    for path, source in _seen(home).items():
        words += ["--ro-bind", source, path]
    return [*words, "--remount-ro", "/", "--", "prlimit", f"--nproc={_THREADS_EACH * limits.processes}"]


def _container(program: str, limits: Limits, home: str) -> list[str]:
    words = [program, "run", "--rm", f"--name={_name(home)}", "--network=none", "--cap-drop=ALL"]
    words += ["--security-opt=no-new-privileges", "--security-opt=label=disable", "--read-only"]
    words += ["--user=65534:65534", f"--memory={limits.memory_bytes}", f"--memory-swap={limits.memory_bytes}"]
    words += [f"--pids-limit={_THREADS_EACH * limits.processes}", f"--shm-size={_ROOM_FOR_FILES}"]
    words += [f"--tmpfs=/tmp:size={_ROOM_FOR_FILES},mode=1777"]
    for path, source in {**_seen(home), home: home}.items():
        words += [f"--mount=type=bind,source={source},target={path},readonly"]
    return [*words, _IMAGE]


def _name(home: str) -> str:
    return Path(home).parent.name


@contextlib.contextmanager
def _home() -> Iterator[str]:
    """Make a folder that only a container's user may enter, of what is seen in place of what is hidden."""
    with tempfile.TemporaryDirectory(prefix="amp-lessons-grading-", ignore_cleanup_errors=True) as private:
        home = Path(private, "home")
        for room in _ROOMS:
            (home / room).mkdir(parents=True)
            for source in (_PACKAGE / "course" / room).rglob("*_there.py"):
                copy = home / source.relative_to(_PACKAGE / "course")
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(source, copy)
        for each in (home, *home.rglob("*")):
            each.chmod(0o755)
        yield str(home)


def _ended_well(command: list[str], given: bytes = b"") -> bool:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, input=given, capture_output=True, timeout=_START_S, check=False)
        return done.returncode == 0
    return False


@functools.cache
def standing() -> Wall:
    """Return the wall that this machine has, tried once."""
    return next((each for each in map(Wall, ("docker", "podman", "bwrap")) if each.works()), Wall(""))


def _python(code: str) -> list[str]:
    path = [str(_PACKAGE.parent), *_PACKAGES]
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {path!r}; {code}"]


_BOOT = """
import gc, os, socket
gc.disable()  # until all is imported: a host turns it on again
os.chdir(os.environ["HOME"])
if not sys.argv[1].isdigit():  # a container inherits no descriptor, but one may be handed over
    with socket.socket(socket.AF_UNIX) as way:
        way.connect(sys.argv[1])
        sys.argv[1] = str(socket.recv_fds(way, 1, 1)[1][0])
from amp_lessons._base.worker import serving
serving.main()
"""


@contextlib.contextmanager
def walled_host(wall: Wall, limits: Limits, preload: Sequence[str] = ()) -> Iterator[Host]:
    """Host workers behind the wall, with these modules imported.

    Of the exercises nothing is there but what has to run beside an attempt. Raises EndedError where it took
    too much.
    """
    with _home() as home:

        def command(descriptor: int) -> list[str]:
            end = f"{descriptor}"
            if wall.is_container:
                end = f"{home}/control"
                _hand_over(end, os.dup(descriptor))
            modules = ["amp_lessons.course.exercises.bed_there", "cloudpickle", *preload]
            return [*wall.words(limits, home), *_python(_BOOT), end, *modules]

        host = Host(command=command, start_s=limits.start_s)
        over = threading.Event()
        took_too_much: list[str] = []
        watch = threading.Thread(target=_watch, args=(host, limits, over, took_too_much), daemon=True)
        watch.start()
        try:
            yield host
        except HostEndedError as error:
            raise EndedError("".join(took_too_much) or str(error)) from error
        finally:
            over.set()
            watch.join()
            _end(host.process)
            host.close()
            if wall.is_container:
                _ended_well([wall.program, "rm", "--force", _name(home)])


def _hand_over(path: str, descriptor: int) -> None:
    """Give this end of a socket to the first who asks for it at ``path``."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    os.chmod(path, 0o777)  # a container's user is nobody; the folder is its owner's alone
    listener.listen(1)
    listener.settimeout(_START_S)

    def hand() -> None:
        with listener, contextlib.suppress(OSError), listener.accept()[0] as way:
            socket.send_fds(way, [b"."], [descriptor])
        os.close(descriptor)

    threading.Thread(target=hand, daemon=True).start()


def _watch(host: Host, limits: Limits, over: threading.Event, took_too_much: list[str]) -> None:
    """End what takes more in all its processes together than one alone can be forbidden."""
    while not over.wait(_LOOK_EVERY_S) and host.process.poll() is None:
        members = list(_tree(host.process.pid))
        if len(members) > limits.processes + 2:
            took_too_much.append(f"it started more than {limits.processes} processes")
        elif sum(map(resident_bytes, members)) > limits.memory_bytes:
            took_too_much.append(f"it took more than {limits.memory_bytes / 2**30:g} GiB of memory")
        if took_too_much:
            _end(host.process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it has started; what is behind bubblewrap ends with its first one."""
    for pid in reversed(list(_tree(process.pid))):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tree(pid: int) -> Iterator[int]:
    """Yield ``pid`` and its descendants, as far as the system tells them."""
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                for child in file.read().split():
                    yield from _tree(int(child))
