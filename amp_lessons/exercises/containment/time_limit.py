"""What stops the learner's code wherever it is, and nothing else of this process: a time limit, the user.

The limit counts processor time, of which a busy machine gives no more than an idle one: what is slow only
because of its neighbours is not stopped. Code that sleeps or waits uses none, and is stopped by the clock.

Code that catches every exception and goes on, as ``while True: try: … except BaseException: pass`` does, may
go on after this one too, and after the user's interrupt, as it would in any cell of a notebook: only the end
of its process is sure to end it. ``isolation`` gives it a process of its own wherever it can.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

from amp_lessons.exercises.containment import learners_code

PATIENCE = 3  # times the limit, by the clock: for code that waits, and code that waits for the processor
_REPEAT_S = 0.05


class TimeUp(BaseException):
    """Raised inside the learner's code when its time is over."""


def processor_s() -> float:
    """Return the processor time of this process in seconds, all of its threads together."""
    return time.process_time()


class Deadline:
    """The moment when ``limit_s`` seconds of processor time, by ``used_s``, are used, counted from now.

    It is never before ``limit_s`` seconds by the clock, for several threads use more than one second in each,
    and never after ``PATIENCE`` times as many.
    """

    def __init__(self, limit_s: float, used_s: Callable[[], float] = processor_s) -> None:
        self._limit_s = limit_s
        self._used_s = used_s
        self._began = time.monotonic(), used_s()

    @property
    def left_s(self) -> float:
        """The seconds that code still has where it runs alone, in one thread; negative after the end."""
        began, used_s_before = self._began
        passed_s = time.monotonic() - began
        counted_s = min(passed_s, self._used_s() - used_s_before)
        return min(self._limit_s - counted_s, PATIENCE * self._limit_s - passed_s)

    @property
    def passed(self) -> bool:
        """Whether that moment is over."""
        return self.left_s <= 0


@contextlib.contextmanager
def alarm(deadline: Deadline) -> Iterator[None]:
    """Raise ``TimeUp`` in the learner's code of this thread at the deadline, and while it then goes on.

    A thread watches: the learner's code cannot stop it, as it could a timer, and signals reach only the main
    thread.
    """
    finished = threading.Event()
    watcher = threading.Thread(target=_watch, args=(threading.get_ident(), deadline, finished), daemon=True)
    with _wakeable():
        watcher.start()
        try:
            yield
        finally:
            finished.set()
            watcher.join()


def _watch(ident: int, deadline: Deadline, finished: threading.Event) -> None:
    while not finished.wait(max(deadline.left_s, _REPEAT_S)):
        if deadline.passed and learners_code.is_learners(sys._current_frames().get(ident)):
            raise_in(ident, TimeUp)
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(ident, signal.SIGURG)


@contextlib.contextmanager
def _wakeable() -> Iterator[None]:
    """Let a signal wake the main thread from a sleep or a lock, to find what is to be raised in it.

    SIGURG is a signal that nobody misses: the system ignores it where no handler is set. Elsewhere than on
    the main thread, and on Windows, the exception waits until the sleep is over.
    """
    if not hasattr(signal, "SIGURG") or threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGURG, _wake_up)
    try:
        yield
    finally:
        signal.signal(signal.SIGURG, previous or signal.SIG_DFL)


def _wake_up(number: int, frame: FrameType | None) -> None:
    """Do nothing: where a function begins, Python raises what was to be raised in its thread."""


@dataclass
class Interrupt:
    """Whether the user has interrupted, since this package began to look."""

    arrived: bool = False


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
        if learners_code.is_learners(frame):
            raise KeyboardInterrupt

    previous = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, on_interrupt)
        yield
    finally:
        signal.signal(signal.SIGINT, previous or signal.default_int_handler)
    if interrupt.arrived:
        raise KeyboardInterrupt


def raise_in(ident: int, error: type[BaseException]) -> None:
    """Raise ``error`` in a thread, as soon as it next runs Python code."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))


@contextlib.contextmanager
def left_running_ended() -> Iterator[None]:
    """End, at the end, the threads that were started meanwhile and still run."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        for thread in threading.enumerate():
            if thread not in before and thread.ident is not None:
                raise_in(thread.ident, SystemExit)
