"""What runs in a host, which forks, and in a worker, which serves calls until its judge is content."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import faulthandler
import gc
import importlib
import json
import linecache
import os
import resource
import select
import signal
import socket
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch

from amp_lessons._base.worker.plain import HEAD, Handle, decode, encode, size

SPAWNS = "AMP_LESSONS_SPAWN"  # set where a fork of a process that has imported PyTorch does not work
_IDLE_S = 900.0  # after which a host ends, where nobody asks for anything
_SAYS_WHERE_S = 0.2  # which a worker has before it is killed
_GENERATIONS = 100  # of processes that a worker may leave behind, each ended once its parent is
_SUBREAPER, _DIES_WITH_PARENT, _DUMPABLE = 36, 1, 4  # of Linux's prctl
_TOLD = 2000  # characters of an exception's text
_NOT_THE_LEARNERS = (
    str(Path(__file__).resolve().parents[2]),
    str(Path(torch.__file__).resolve().parent.parent),
    sysconfig.get_path("stdlib"),
    "<frozen",
)


def _prctl(option: int, value: int) -> None:
    """Ask Linux for something; other systems do without."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# --- the host


def main() -> NoReturn:
    """Host workers: the program's arguments are a descriptor, and modules to import.

    Whoever starts it has turned the garbage collector off: with it imports take a third longer.
    """
    _host(int(sys.argv[1]), tuple(sys.argv[2:]))


def _host(descriptor: int, preload: tuple[str, ...]) -> NoReturn:
    """Import what is needed, say so, and fork whatever is asked for until nobody is left who could ask."""
    for name in preload:
        importlib.import_module(name)
    _collect_no_more_of_this()
    _prctl(_SUBREAPER, 1)  # what a worker leaves behind becomes the host's to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for whoever asked
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    control.sendall(b'"ready"\n')
    _Host(control).run()
    os._exit(0)


class _Host:
    """Answers requests of its owner and of judges; what one has asked for ends with its connection."""

    def __init__(self, control: socket.socket) -> None:
        self._owner = control
        self._children: dict[socket.socket, set[int]] = {control: set()}

    def run(self) -> None:
        """Serve until the owner is gone, or nobody has asked for a long time."""
        while ready := select.select(list(self._children), [], [], _IDLE_S)[0]:
            for control in ready:
                if not self._answer(control):
                    for pid in list(self._children[control]):
                        self._end(control, pid)
                    del self._children[control]
                    control.close()
                    if control is self._owner:
                        return

    def _answer(self, control: socket.socket) -> bool:
        try:
            line, ends, *_ = socket.recv_fds(control, 1 << 16, 2)
        except OSError:
            return False
        if not line:
            return False
        word, *rest = json.loads(line)
        if word == "fork":
            result = self._start(control, _work, ends, *rest)
        elif word == "judge":
            result = self._start_judge(control, rest, ends)
        elif word == "import":
            result = _imported(rest[0])
        else:
            result = self._end(control, rest[0])
        for end in ends:
            os.close(end)
        with contextlib.suppress(OSError):  # who asked is gone: the next ``recv`` will tell
            control.sendall(json.dumps(result).encode() + b"\n")
        return True

    def _start(self, control: socket.socket, work: Callable[..., None], ends: list[int], *args: Any) -> int:
        """Let a function of this module work in a process of its own, with nothing open but ``ends``."""
        if os.environ.get(SPAWNS):
            for end in ends:
                os.set_inheritable(end, True)
            code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import {work.__name__}; "
            words = [sys.executable, "-c", f"{code}{work.__name__}({ends!r}, *{args!r})"]
            pid = os.posix_spawn(sys.executable, words, os.environ)
        else:
            pid = os.fork()
            if pid == 0:
                try:
                    for each in self._children:
                        each.close()
                    work(ends, *args)
                finally:
                    os._exit(70)
        self._children[control].add(pid)
        return pid

    def _start_judge(self, control: socket.socket, request: list[Any], ends: list[int]) -> int:
        """Start a judge, which asks this host for workers by a connection of its own."""
        ours, theirs = socket.socketpair()
        self._children[ours] = set()
        pid = self._start(control, _judge, [*ends, theirs.fileno()], *request)
        theirs.close()
        return pid

    def _end(self, control: socket.socket, pid: int) -> int:
        """End a process that was forked here, and all that it left behind; return its exit status."""
        status = _ended(pid)
        self._children[control].discard(pid)
        forked = {each for pids in self._children.values() for each in pids}
        for _ in range(_GENERATIONS):
            if not (left := _children_now() - forked):
                break
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
                _wait(each, 0)
        return status


def _imported(name: str) -> int:
    """Import a module, and let it compute what its functions will ask for again: all forks have it then."""
    gc.disable()
    getattr(importlib.import_module(name), "warm_up", int)()
    _collect_no_more_of_this()
    return 0


def _collect_no_more_of_this() -> None:
    """Turn the garbage collector on for what comes: what is imported stays, and no fork looks through it."""
    gc.freeze()
    gc.enable()


def resident_bytes(pid: int) -> int:
    """Return the bytes of memory that a process holds, 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def _ended(pid: int) -> int:
    """End a child and its session; return its exit status, negative by a signal."""
    found, status = _wait(pid, os.WNOHANG)
    if not found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGXCPU)  # it says where it is, and ends
        until = time.monotonic() + _SAYS_WHERE_S
        while not found and time.monotonic() < until:
            time.sleep(0.002)
            found, status = _wait(pid, os.WNOHANG)
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)  # a worker has a session of its own
    if not found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status = _wait(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _children_now() -> set[int]:
    """Return the processes whose parent this one is, orphans too; none where the system does not tell."""
    with (
        contextlib.suppress(OSError),
        open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file,
    ):
        return set(map(int, file.read().split()))
    return set()


def _wait(pid: int, how: int) -> tuple[int, int]:
    try:
        return os.waitpid(pid, how)
    except ChildProcessError:
        return pid, 0


def _judge(ends: list[int], name: str, *request: Any) -> None:
    """Let a function judge; what it returns is sent by the first of these ends, the other is to its host."""
    _prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    _prctl(_DUMPABLE, 0)  # a worker of the same account may not look into its memory
    module, _, function = name.partition(":")
    channel, control = (socket.socket(fileno=each) for each in ends)
    said = getattr(importlib.import_module(module), function)(control, channel, *request)
    channel.sendall(json.dumps(said).encode())
    channel.shutdown(socket.SHUT_WR)
    os._exit(0)


# --- the worker


def _work(ends: list[int], cpu_s: int, memory: int) -> None:
    """Serve calls in a process that has just been forked, within its limits."""
    os.setsid()
    _prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    for stream in (1, 2):
        os.dup2(ends[1], stream)
    os.close(ends[1])
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.enable(2)
    faulthandler.register(signal.SIGXCPU, 2, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    most = _data_now() + memory
    with contextlib.suppress(ValueError, OSError):  # not on every system
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    _Server(socket.socket(fileno=ends[0])).run()


def _data_now() -> int:
    """Return the bytes of data that this process has by now, 0 where the system does not tell."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmData"))
    return 0


class _Server:
    """Answers one request after another: what is to be loaded, and what is to be called."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._stream = connection, connection.makefile("rb")
        self._objects: list[Any] = []

    def run(self) -> NoReturn:
        """Serve until the judge is gone, or this process is ended."""
        while len(head := self._stream.read(HEAD)) == HEAD:
            request = decode(head + self._stream.read(size(head)), self._objects.__getitem__)
            try:
                message = encode({"ok": self._result(request)})
                sys.stdout.flush()
            except BaseException as error:
                message = encode({"raised": told(error)})
            self._connection.sendall(message)
        os._exit(0)

    def _result(self, request: dict[str, Any]) -> Any:
        if request["do"] == "load":
            self._objects += _loaded(request)
            return len(self._objects)
        of = request["of"]
        if isinstance(of, str):
            module, _, name = of.partition(":")
            of = getattr(importlib.import_module(module), name)
        function = getattr(of, request["method"]) if request["method"] else of
        result = function(*request["args"], **request["kwargs"])
        if request["keep"]:
            self._objects.append(result)
            return Handle(len(self._objects) - 1)
        return result


def _loaded(request: dict[str, Any]) -> list[Any]:
    """Return the learner's objects, unpickled or defined by their source; ``lines`` are those of cells."""
    for file, text in request.get("lines", {}).items():
        linecache.cache[file] = len(text), None, text.splitlines(True), file
    if "source" in request:
        space: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook
        exec(compile(request["source"], "<submission>", "exec"), space)
        return [space[name] for name in request["names"]]
    import cloudpickle

    return list(cloudpickle.loads(request["pickle"].numpy().tobytes()))


def told(error: BaseException) -> list[Any]:
    """Say what was raised: the names of its classes, its first line, and the learner's innermost line."""
    try:
        kinds = [each.__name__ for each in type(error).__mro__]
        line, by_statement = innermost_line(error.__traceback__), _is_raised_by_statement(error)
        return [kinds, str(error)[:_TOLD], line, by_statement]
    except BaseException:  # it is the learner's: putting it into words may raise what it likes
        return [[type(error).__name__], "", "", False]


def innermost_line(trace: TracebackType | None) -> str:
    """Name the innermost line of the learner's own code in a traceback: "line 7: scaler.step()"."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames or frames[-1].lineno is None:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno}: {source}" if source else f"line {frames[-1].lineno}"


def _is_raised_by_statement(error: BaseException) -> bool:
    """Whether a ``raise`` statement raised it: PyTorch's kernels raise NotImplementedError, too."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


if __name__ == "__main__":
    main()
