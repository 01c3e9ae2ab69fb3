"""Call a learner's code so that whatever it does ends in an `Outcome` and leaves this process as it was.

`contained` prepares the process for a whole check: output is captured and bounded, calls that end or copy the
process are refused, a time limit runs, the user's interrupt is held back while this package works. `call`
then runs one piece of learner's code. What cannot be held from inside (a loop in C, a captured reference to
``os._exit``) is what `isolation` uses a child process for.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import io
import itertools
import linecache
import os
import random
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

from amp_lessons.exercises.state import Snapshot

_REPEAT_S = 0.05
_PRINTED_CHARACTERS = 2000
_NOT_THE_LEARNERS = (
    str(Path(__file__).resolve().parent.parent),
    str(Path(torch.__file__).resolve().parent.parent),
    sysconfig.get_path("stdlib"),
    "<frozen",
)
_lock = threading.RLock()
_current: Session | None = None


class TimeUp(BaseException):
    """Raised inside the learner's code when its time is over."""


class Refused(BaseException):
    """Raised in place of a call that would end, copy or block the process."""


class BoundedText(io.TextIOBase):
    """A text stream that counts everything and keeps the first ``limit`` characters."""

    def __init__(self, limit: int = _PRINTED_CHARACTERS) -> None:
        self._limit = limit
        self._kept: list[str] = []
        self._room = limit
        self.characters = 0

    def writable(self) -> bool:
        """Say that this stream takes text."""
        return True

    def write(self, text: str) -> int:
        """Take ``text``, keeping only what still fits."""
        self.characters += len(text)
        if self._room > 0:
            self._kept.append(text[: self._room])
            self._room -= len(text)
        return len(text)

    def text(self) -> str:
        """Return what was kept, saying how much was not."""
        kept = "".join(self._kept).rstrip("\n")
        dropped = self.characters - self._limit
        return f"{kept}\n… and {dropped:,} more characters" if dropped > 0 else kept


@dataclass
class Interrupt:
    """Whether the user has interrupted, since this package began to look."""

    arrived: bool = False


@dataclass
class Session:
    """One check under way: its deadline, what it printed, and what it was refused."""

    deadline: float
    output: BoundedText = field(default_factory=BoundedText)
    refused: list[str] = field(default_factory=list)
    interrupt: Interrupt = field(default_factory=Interrupt)
    stopped_at: str = ""

    @property
    def late(self) -> bool:
        """Whether the time limit has passed."""
        return time.monotonic() >= self.deadline

    def safe_point(self) -> None:
        """Act on an interrupt or a time limit that arrived while nothing of the learner's was running."""
        if self.interrupt.arrived:
            raise KeyboardInterrupt
        if self.late:
            raise TimeUp


@dataclass(frozen=True)
class Outcome:
    """What one call of learner's code came to; ``error_text`` is the first line of its exception's text."""

    value: Any = None
    error: BaseException | None = None
    error_text: str = ""
    where: str = ""
    left_behind: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def active() -> bool:
    """Whether a check is under way in this process: learner's code may itself call a check."""
    return _current is not None


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
    """Run ``function`` and return what came of it; only time limit and user's interrupt get through."""
    assert _current is not None, "learner's code runs inside contained()"
    session = _current
    session.safe_point()
    snapshot = Snapshot()
    value: Any = None
    error: BaseException | None = None
    text = ""
    refused_before = len(session.refused)
    try:
        value = function(*args, **kwargs)
    except (TimeUp, KeyboardInterrupt) as stop:
        if isinstance(stop, KeyboardInterrupt) and not session.interrupt.arrived:
            error = stop  # raised by the learner's own code, not by the user
        else:
            session.stopped_at = learners_line(stop.__traceback__)
            raise
    except BaseException as caught:
        error, text = caught, _first_line(caught)
    finally:
        left_behind, patched = snapshot.restore()
    session.safe_point()
    where = learners_line(error.__traceback__) if error is not None else ""
    refused = tuple(session.refused[refused_before:])
    return Outcome(value, error, text, where, tuple(left_behind), tuple(patched), refused)


def _first_line(error: BaseException) -> str:
    """Return the first line of an exception's text; one of the learner's own may fail to give it."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        return ""
    return lines[0][:300] if lines else ""


def learners_line(trace: TracebackType | None) -> str:
    """Name the innermost line of the learner's own code in a traceback: "line 7: scaler.step()"."""
    frames = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_NOT_THE_LEARNERS)]
    if not frames or frames[-1].lineno is None:
        return ""
    source = linecache.getline(frames[-1].filename, frames[-1].lineno).strip()
    return f"line {frames[-1].lineno}: {source}" if source else f"line {frames[-1].lineno}"


@contextlib.contextmanager
def contained(limit_s: float) -> Iterator[Session]:
    """Prepare this process for learner's code that has ``limit_s`` seconds; put everything back after."""
    global _current
    with _lock:
        previous, session = _current, Session(time.monotonic() + limit_s)
        with interrupts_held(session.interrupt):
            snapshot = Snapshot()
            try:
                _current = session
                # tiny tensors only: a pool of threads costs more than it brings, and has to wake up for every
                # operation
                torch.set_num_threads(1)
                with (
                    _captured_output(session),
                    _refusals(session),
                    _alarm(session),
                    warnings.catch_warnings(),
                ):
                    warnings.simplefilter("ignore")
                    yield session
            finally:
                _current = previous
                snapshot.restore()
                _stop_threads(snapshot.new_threads())


@contextlib.contextmanager
def _captured_output(session: Session) -> Iterator[None]:
    stdin = sys.stdin
    with contextlib.redirect_stdout(session.output), contextlib.redirect_stderr(session.output):
        try:
            sys.stdin = io.StringIO()
            yield
        finally:
            sys.stdin = stdin


def _refusal(session: Session, name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> None:
        session.refused.append(name)
        raise Refused(name)

    return refuse


@contextlib.contextmanager
def _refusals(session: Session) -> Iterator[None]:
    """Replace every call that would end, copy or block this process by one that is recorded and raises."""
    names = ("_exit", "abort", "fork", "forkpty", "kill", "killpg", "execv", "execve")
    targets: list[tuple[Any, str]] = [(os, name) for name in names if hasattr(os, name)]
    targets += [
        (builtins, name) for name in ("exit", "quit", "input", "breakpoint") if hasattr(builtins, name)
    ]
    targets += _notebook_exit()
    originals = [(owner, name, vars(owner).get(name)) for owner, name in targets]
    try:
        for owner, name in targets:
            setattr(owner, name, _refusal(session, _spelling(owner, name)))
        yield
    finally:
        for owner, name, original in originals:
            _put_back(owner, name, original)


def _put_back(owner: Any, name: str, original: Any) -> None:
    if original is None:  # it came from the class, so nothing of the instance's own was replaced
        delattr(owner, name)
    else:
        setattr(owner, name, original)


def _spelling(owner: Any, name: str) -> str:
    if owner is os:
        return f"os.{name}()"
    return "exit()" if name == "ask_exit" else f"{name}()"


def _notebook_exit() -> list[tuple[Any, str]]:
    """Find what ``exit()`` means in a notebook: IPython's own, which asks the whole kernel to end."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return [(shell, "ask_exit")] if shell is not None else []


@contextlib.contextmanager
def interrupts_held(interrupt: Interrupt) -> Iterator[None]:
    """Let the user's interrupt stop the learner's code at once, and this package once it has tidied up.

    Python would otherwise raise KeyboardInterrupt anywhere, in the middle of tidying up as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        interrupt.arrived = True
        if _in_learners_code(frame):
            raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, on_interrupt)
        yield
    finally:
        signal.signal(signal.SIGINT, previous or signal.default_int_handler)
    if interrupt.arrived:
        raise KeyboardInterrupt


def _in_learners_code(frame: FrameType | None) -> bool:
    """Whether ``frame`` was called, at whatever distance, by `call`, where its exceptions end up."""
    if frame is None or frame.f_code is call.__code__:
        return False
    while frame is not None and frame.f_code is not call.__code__:
        if frame.f_code in _OWN_WORK:
            return False
        frame = frame.f_back
    return frame is not None


_OWN_WORK = {Snapshot.__init__.__code__, Snapshot.restore.__code__, learners_line.__code__}


@contextlib.contextmanager
def _alarm(session: Session) -> Iterator[None]:
    """Raise `TimeUp` in the learner's code at the deadline, and again for as long as it swallows it."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not (on_main_thread and hasattr(signal, "SIGALRM")):
        with _thread_alarm(session):
            yield
        return
    # the learner's code may replace the signal's handler or stop its timer
    with _thread_alarm(session, later_s=4 * _REPEAT_S), _signal_alarm(session):
        yield


@contextlib.contextmanager
def _signal_alarm(session: Session) -> Iterator[None]:
    swallowed = itertools.count()

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if not (session.late and frame and _in_learners_code(frame)):
            return
        if next(swallowed) % 2:
            _raise_some_lines_later(frame)
        else:
            raise TimeUp

    previous = signal.getsignal(signal.SIGALRM)
    started = time.monotonic()
    before_s, repeat_s = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, max(session.deadline - started, _REPEAT_S), _REPEAT_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)
        if before_s:  # someone else's timer was running: let it run on
            left_s = max(before_s - (time.monotonic() - started), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, repeat_s)


def _raise_some_lines_later(frame: FrameType) -> None:
    """Raise `TimeUp` a random number of lines from here.

    A loop around ``try: … except BaseException: pass`` swallows whatever is raised in its body, and an alarm
    always finds it there when the body sleeps. Sooner or later a random line is one outside the ``try``.
    """
    lines_left = random.randrange(8)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines_left
        lines_left -= 1
        if lines_left < 0 and _in_learners_code(frame):
            raise TimeUp
        return trace

    for outer in _frames_up_to_call(frame):
        outer.f_trace = trace
    sys.settrace(trace)


def _frames_up_to_call(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None and frame.f_code is not call.__code__:
        yield frame
        frame = frame.f_back


@contextlib.contextmanager
def _thread_alarm(session: Session, later_s: float = 0.0) -> Iterator[None]:
    """Do the same where signals do not reach: on Windows, off the main thread, or once they are ignored."""
    finished = threading.Event()
    target = threading.get_ident()

    def watch() -> None:
        finished.wait(max(session.deadline + later_s - time.monotonic(), 0))
        while not finished.wait(_REPEAT_S):
            if _in_learners_code(sys._current_frames().get(target)):
                _raise_in_thread(target, TimeUp)

    watcher = threading.Thread(target=watch, name="amp-lessons time limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()


def _raise_in_thread(ident: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


def _stop_threads(threads: list[threading.Thread]) -> None:
    for thread in threads:
        if thread.ident is not None and thread.name != "amp-lessons time limit":
            _raise_in_thread(thread.ident, SystemExit)
