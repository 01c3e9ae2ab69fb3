"""A time limit that stops the learner's code wherever it is, and nothing else of this process."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from amp_lessons.exercises.containment import learners_code, other_threads, time_up

_REPEAT_S = 0.05


class Deadline:
    """The moment ``limit_s`` seconds from now."""

    def __init__(self, limit_s: float) -> None:
        self._moment = time.monotonic() + limit_s

    @property
    def left_s(self) -> float:
        """The seconds until then, negative after it."""
        return self._moment - time.monotonic()

    @property
    def passed(self) -> bool:
        """Whether that moment is over."""
        return self.left_s <= 0


@contextlib.contextmanager
def alarm(deadline: Deadline) -> Iterator[None]:
    """Raise `TimeUp` in the learner's code at the deadline, and again for as long as it swallows it."""
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not (on_main_thread and hasattr(signal, "SIGALRM")):
        with _thread_alarm(deadline):
            yield
        return
    # the learner's code may replace the signal's handler or stop its timer
    with _thread_alarm(deadline, later_s=4 * _REPEAT_S), _signal_alarm(deadline):
        yield


@contextlib.contextmanager
def _signal_alarm(deadline: Deadline) -> Iterator[None]:
    raised = time_up.errors()

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if deadline.passed and learners_code.is_learners(frame):
            raise next(raised)

    previous = signal.getsignal(signal.SIGALRM)
    started = time.monotonic()
    before_s, repeat_s = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.signal(signal.SIGALRM, on_alarm)
        signal.setitimer(signal.ITIMER_REAL, max(deadline.left_s, _REPEAT_S), _REPEAT_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous or signal.SIG_DFL)
        if before_s:  # someone else's timer was running: let it run on
            left_s = max(before_s - (time.monotonic() - started), 1e-3)
            signal.setitimer(signal.ITIMER_REAL, left_s, repeat_s)


@contextlib.contextmanager
def _thread_alarm(deadline: Deadline, later_s: float = 0.0) -> Iterator[None]:
    """Do the same where signals do not reach: on Windows, off the main thread, or once they are ignored."""
    finished = threading.Event()
    target = threading.get_ident()
    raised = time_up.errors()

    def watch() -> None:
        finished.wait(max(deadline.left_s + later_s, 0))
        while not finished.wait(_REPEAT_S):
            if learners_code.is_learners(sys._current_frames().get(target)):
                other_threads.raise_in(target, next(raised))

    watcher = threading.Thread(target=watch, name=other_threads.WATCHING, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        finished.set()
        watcher.join()
