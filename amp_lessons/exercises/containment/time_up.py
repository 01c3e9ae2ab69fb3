"""The exception that ends learner's code when its time is over, even where it catches every exception."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from amp_lessons.exercises.containment import learners_code, other_threads

# Python 3.12 counts the jump back to the head of a loop as part of the try in it, and 3.10 looks at fewer
# places for what it was asked to raise: what is raised so does not get out of every loop there
GETS_OUT_OF_NESTED_LOOPS = sys.version_info[:2] == (3, 11) or sys.version_info >= (3, 13)


class TimeUp(BaseException):
    """Raised inside the learner's code when its time is over."""


class _TimeUpForGood(TimeUp):
    """A `TimeUp` in the place of one that was swallowed: where it is caught, the next one follows at once.

    Python makes the exception in the thread that it is raised in, when something there is about to catch it.
    """

    def __init__(self) -> None:
        super().__init__()
        frame = sys._getframe(1)
        if learners_code.is_learners(frame):
            again = _raise_after_every_line if GETS_OUT_OF_NESTED_LOOPS else _raise_some_lines_later
            again(frame)


def errors() -> Iterator[type[TimeUp]]:
    """Yield what to raise: first an exception that lets learner's code tidy up, then one that does not."""
    yield TimeUp
    while True:
        yield _TimeUpForGood


def _raise_after_every_line(frame: FrameType) -> None:
    """Raise `TimeUp` in ``frame`` and those that called it, whenever one of them has begun another line.

    However many loops around ``try: … except BaseException: pass`` are nested, each handler has a line, and
    what is raised there is caught one loop further out. Python drops a tracing function that raises, so this
    one asks for the exception instead. It is a function in C, or the exception would end it and not the loop.
    """
    for outer in learners_code.frames_from(frame):
        outer.f_trace = other_threads.asking(threading.get_ident(), TimeUp)
    # frames are traced only while there is a function for new ones as well; these need no tracing
    sys.settrace(other_threads.asking(other_threads.NOBODY, TimeUp))


def _raise_some_lines_later(frame: FrameType) -> None:
    """Raise `TimeUp` a random number of lines from here.

    Sooner or later a random line is one outside the ``try``, where loops are not nested.
    """
    lines_left = random.randrange(8)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines_left
        lines_left -= 1
        if lines_left < 0 and learners_code.is_learners(frame):
            raise TimeUp
        return trace

    for outer in learners_code.frames_from(frame):
        outer.f_trace = trace
    sys.settrace(trace)
