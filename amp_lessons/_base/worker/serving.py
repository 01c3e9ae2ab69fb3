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
import pickle
import resource
import select
import signal
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch

from amp_lessons._base.worker.plain import HEAD, Handle, decode, encode, size

SPAWNS = "AMP_LESSONS_SPAWN"  # set where a fork of a process that has imported PyTorch does not work
_LOOKS_EVERY_S = 1.0  # a host whether its parent is still there: a fork of that may hold its connection open
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


def main(idle_s: float = inf) -> NoReturn:
    """Host workers: the program's arguments are a descriptor, and modules to import.

    Import these, say so, and fork whatever is asked for until nobody is left who could ask. Whoever starts
    it has turned the garbage collector off: with it imports take a third longer.
    """
    descriptor, *preload = sys.argv[1:]
    for name in preload:
        _imported(name)
    _collect_no_more_of_this()
    _prctl(_SUBREAPER, 1)  # what a worker leaves behind becomes the host's to end
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for whoever asked
    control = socket.socket(fileno=int(descriptor))
    control.set_inheritable(False)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # until here it said why it could not start
    control.sendall(b'"ready"\n')
    _Host(control).run(idle_s)
    os._exit(0)


class _Host:
    """Answers requests of its owner and of judges; what one has asked for ends with its connection."""

    def __init__(self, control: socket.socket) -> None:
        self._owner = control
        self._children: dict[socket.socket, set[int]] = {control: set()}

    def run(self, idle_s: float) -> None:
        """Serve until the owner is gone, or nobody has asked for so long, and end what was forked."""
        parent, asked = os.getppid(), time.monotonic()
        while self._owner in self._children and os.getppid() == parent:
            if not any(self._children.values()) and time.monotonic() > asked + idle_s:
                break
            for control in select.select(list(self._children), [], [], _LOOKS_EVERY_S)[0]:
                asked = time.monotonic()
                if not self._answer(control):
                    self._end(*self._children.pop(control))
                    control.close()
        self._end(*self._forked())

    def _forked(self) -> set[int]:
        return {pid for pids in self._children.values() for pid in pids}

    def _answer(self, control: socket.socket) -> bool:
        try:
            line, ends, *_ = socket.recv_fds(control, 1 << 16, 3)
        except OSError:
            return False
        if not line:
            return False
        word, *rest = json.loads(line)
        result: int | list[int]
        if word == "fork":
            result = self._start(control, _work, ends, *rest)
        elif word == "judge":
            result = self._start_judge(control, rest, ends)
        elif word == "import":
            result = _imported(rest[0])
        else:
            result = self._end(*rest)
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
            code += f"from math import inf; {work.__name__}({ends!r}, *{args!r})"  # inf stands among limits
            words = [sys.executable, "-c", code]
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

    def _end(self, *pids: int) -> list[int]:
        """End processes that were forked here, and all that they left behind; return their exit statuses."""
        for pid in pids:  # each before any is gone: what others do then is not what they were doing
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGXCPU)  # it says where it is, and ends
        until = time.monotonic() + _SAYS_WHERE_S
        statuses = [_ended(pid, until) for pid in pids]
        for forked in self._children.values():
            forked.difference_update(pids)
        for _ in range(_GENERATIONS):
            if not (left := _children_now() - self._forked()):
                break
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
                _wait(each, 0)
        return statuses


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


def _ended(pid: int, until: float) -> int:
    """Kill a child that has not ended in time, and its session; return its status, negative by a signal."""
    found, status = _wait(pid, os.WNOHANG)
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
    _end_with_host()
    _prctl(_DUMPABLE, 0)  # a worker of the same account may not look into its memory
    module, _, function = name.partition(":")
    channel, control = (socket.socket(fileno=each) for each in ends)
    said = getattr(importlib.import_module(module), function)(control, channel, *request)
    channel.sendall(json.dumps(said).encode())
    channel.shutdown(socket.SHUT_WR)
    os._exit(0)


def _end_with_host() -> None:
    """Let this process end when its host does, whatever ends that."""
    host = os.getppid()
    _prctl(_DIES_WITH_PARENT, signal.SIGKILL)

    def watch() -> NoReturn:
        while os.getppid() == host:
            time.sleep(0.5)
        os._exit(70)

    if not sys.platform.startswith("linux"):
        threading.Thread(target=watch, daemon=True).start()


# --- the worker


def _work(ends: list[int], cpu_s: float, memory: float) -> None:
    """Serve calls in a process that has just been forked, within its limits."""
    connection, output, stack = ends
    os.setsid()
    _end_with_host()
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what is lost at a kill is a line
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(signal.SIGXCPU, stack, all_threads=False, chain=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if isfinite(cpu_s):
        whole = max(1, round(cpu_s))
        resource.setrlimit(resource.RLIMIT_CPU, (whole, whole + 1))
    if isfinite(memory):
        most = _data_now() + int(memory)
        with contextlib.suppress(ValueError, OSError):  # not on every system
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    _Server(socket.socket(fileno=connection)).run()


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
            except BaseException as error:
                message = encode({"raised": told(error)})
            with contextlib.suppress(Exception):  # it may be closed
                sys.stdout.flush()
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
    """Return somebody's objects, unpickled or defined by their source; ``lines`` are those of cells."""
    for file, text in request.get("lines", {}).items():
        linecache.cache[file] = len(text), None, text.splitlines(True), file
    if "source" in request:
        space: dict[str, Any] = {"__name__": "__main__"}  # as in a notebook
        exec(compile(request["source"], "<submission>", "exec"), space)
        return [space[name] for name in request["names"]]
    return list(pickle.loads(request["pickle"]))


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
