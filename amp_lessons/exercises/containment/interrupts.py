"""The user's interrupt: it stops learner's code at once, and this package once it has tidied up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from amp_lessons.exercises.containment import learners_code


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
