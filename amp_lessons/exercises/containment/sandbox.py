"""Call a learner's code so that whatever it does ends in an `Outcome` and leaves this process as it was.

`contained` prepares the process for a whole check: output is captured and bounded, calls that end or copy the
process are refused, a time limit runs, the user's interrupt is held back while this package works. `call`
then runs one piece of learner's code. What cannot be held from inside (a loop in C, a captured reference to
``os._exit``) is what `isolation` uses a child process for.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from amp_lessons.exercises.containment import learners_code, other_threads
from amp_lessons.exercises.containment.captured_output import BoundedText, captured
from amp_lessons.exercises.containment.interrupts import Interrupt, interrupts_held
from amp_lessons.exercises.containment.no_compiler import not_compiling
from amp_lessons.exercises.containment.process_state import Snapshot, neutral
from amp_lessons.exercises.containment.refused_calls import refusing
from amp_lessons.exercises.containment.time_limit import Deadline, alarm
from amp_lessons.exercises.containment.time_up import TimeUp

_lock = threading.RLock()
_current: Session | None = None


@dataclass
class Session:
    """One check under way: its deadline, what it printed, and what it was refused."""

    deadline: Deadline
    output: BoundedText = field(default_factory=BoundedText)
    refused: list[str] = field(default_factory=list)
    interrupt: Interrupt = field(default_factory=Interrupt)
    stopped_at: str = ""

    def safe_point(self) -> None:
        """Act on an interrupt or a time limit that arrived while nothing of the learner's was running."""
        if self.interrupt.arrived:
            raise KeyboardInterrupt
        if self.deadline.passed:
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
        value = learners_code.enter(function, *args, **kwargs)
    except (TimeUp, KeyboardInterrupt) as stop:
        if isinstance(stop, KeyboardInterrupt) and not session.interrupt.arrived:
            error = stop  # raised by the learner's own code, not by the user
        else:
            session.stopped_at = learners_code.innermost_line(stop.__traceback__)
            raise
    except BaseException as caught:
        error, text = caught, _first_line(caught)
    finally:
        left_behind, patched = snapshot.restore()
    session.safe_point()
    where = learners_code.innermost_line(error.__traceback__) if error is not None else ""
    refused = tuple(session.refused[refused_before:])
    return Outcome(value, error, text, where, tuple(left_behind), tuple(patched), refused)


def _first_line(error: BaseException) -> str:
    """Return the first line of an exception's text; one of the learner's own may fail to give it."""
    try:
        lines = learners_code.enter(str, error).strip().splitlines()
    except Exception:
        return ""
    return lines[0][:300] if lines else ""


@contextlib.contextmanager
def contained(limit_s: float) -> Iterator[Session]:
    """Prepare this process for learner's code that has ``limit_s`` seconds; put everything back after."""
    global _current
    with _lock:
        previous, session = _current, Session(Deadline(limit_s))
        with interrupts_held(session.interrupt), _threads_ended(), neutral():
            try:
                _current = session
                with _held(session):
                    yield session
            finally:
                _current = previous


@contextlib.contextmanager
def _threads_ended() -> Iterator[None]:
    """End what the learner's code started and left running."""
    before = set(threading.enumerate())
    try:
        yield
    finally:
        other_threads.end(thread for thread in threading.enumerate() if thread not in before)


@contextlib.contextmanager
def _held(session: Session) -> Iterator[None]:
    with (
        captured(session.output),
        refusing(session.refused),
        alarm(session.deadline),
        warnings.catch_warnings(),
        not_compiling(),
    ):
        warnings.simplefilter("ignore")
        yield
