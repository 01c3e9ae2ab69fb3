"""Call a learner's code so that whatever it does ends in an ``Outcome`` and leaves this process as it was.

``contained`` prepares the process for a whole check: output is captured and bounded, calls that end or copy
the process are refused, a time limit runs, the user's interrupt is held back while this package works. The
check then runs each piece of learner's code by ``call``, which finds the ``Session`` that ``contained`` began
in a context variable: exercises need not hand it on. So the chain is ``checking.examine`` ->
``isolation.run`` -> ``contained`` -> the exercise's check -> ``call`` -> ``learners_code.enter`` -> the
learner's function, and back through ``Outcome``. A thread that the learner starts is in no session: a check
that it asks for waits for this one to end. What cannot be held from inside (a loop in C, a captured reference
to ``os._exit``) is what ``isolation`` uses a child process for.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from amp_lessons._base.worker.lines import innermost_line
from amp_lessons.exercises.containment import learners_code
from amp_lessons.exercises.containment.process_state import Snapshot, neutral
from amp_lessons.exercises.containment.stand_ins import BoundedText, captured, not_compiling, refusing
from amp_lessons.exercises.containment.time_limit import (
    Deadline,
    Interrupt,
    TimeUp,
    alarm,
    interrupts_held,
    left_running_ended,
)

_lock = threading.RLock()
_session: ContextVar[Session] = ContextVar("session of a check")


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

    def stopped_by(self, error: BaseException) -> bool:
        """Whether the time limit or the user raised ``error``, and not the learner's own code."""
        return isinstance(error, TimeUp) or (isinstance(error, KeyboardInterrupt) and self.interrupt.arrived)


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
    """Whether a check is under way here: the learner's code, or a thread of its, may ask for another."""
    if not _lock.acquire(blocking=False):
        return True  # another thread's
    _lock.release()
    return _session.get(None) is not None


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Outcome:
    """Run ``function`` and return what came of it; only time limit and user's interrupt get through.

    Raises LookupError outside of ``contained``.
    """
    session = _session.get()
    session.safe_point()
    snapshot = Snapshot()
    value: Any = None
    error: BaseException | None = None
    text = ""
    refused_before = len(session.refused)
    try:
        value = learners_code.enter(function, *args, **kwargs)
    except BaseException as caught:
        if session.stopped_by(caught):
            session.stopped_at = innermost_line(caught.__traceback__)
            raise
        error, text = caught, _first_line(caught)
    finally:
        left_behind, patched = snapshot.restore()
    session.safe_point()
    where = innermost_line(error.__traceback__) if error is not None else ""
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
    with _lock:
        session = Session(Deadline(limit_s))
        with interrupts_held(session.interrupt), left_running_ended(), neutral(), _held(session):
            token = _session.set(session)
            try:
                yield session
            finally:
                _session.reset(token)


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
