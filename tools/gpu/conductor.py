"""Go through the steps, part by part, each step in a process of its own, and keep what every part came to.

A part that crashes or hangs ends its process and not the run. What was begun is noted before it runs, so that
a part which takes the whole machine down with it is not begun for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from amp_lessons.keeping.from_json import fits
from tools.gpu.found import Place
from tools.gpu.process import Child, EndedError
from tools.gpu.recording import Part, PartStatus, Recording, StepRecord, found_in

MOST_TRIES = 2
_TROUBLES: tuple[PartStatus, ...] = ("not possible", "cut short", "failed")
_START_S = 180.0  # to import PyTorch from a slow disk, and to find out which parts there are

Keep = Callable[[Recording], object]
Say = Callable[[str], object]


@dataclass(frozen=True)
class Step:
    """A step: ``module`` has ``parts(place)``, the names of its parts, and ``run(name, place)``.

    A part is not begun with less than ``usual_s`` seconds left. One that takes longer than ``limit_s`` is
    given up, and the rest of its step left for the next call: what made one hang may make all of them.
    """

    name: str
    module: str
    title: str
    usual_s: float
    limit_s: float


@dataclass
class Conductor:
    """One call of ``make gpu``: ``keep`` stores a recording, ``say`` tells somebody who waits.

    ``log`` is where the steps' own words go. ``deadline`` is a time of ``time.monotonic()``, at which
    everything has ended.
    """

    place: Place
    deadline: float
    log: Path
    keep: Keep
    say: Say = print
    commit: str = ""
    left_for_next: list[str] = field(default_factory=list)

    def conduct(self, steps: Iterable[Step], recording: Recording) -> Recording:
        """Run what is outstanding of the steps, in order; return the recording, which was kept each time."""
        for step in steps:
            recording = _Run(self, step, recording).run()
        return recording

    @property
    def left_s(self) -> float:
        """The seconds until the deadline."""
        return self.deadline - time.monotonic()


class _Run:
    """One step of one call."""

    def __init__(self, conductor: Conductor, step: Step, recording: Recording) -> None:
        self._conductor, self._step, self._recording = conductor, step, recording
        self._child: Child | None = None
        self._knows_parts = False

    def run(self) -> Recording:
        """Run what is outstanding; return the recording."""
        if not self._record.is_finished and self._has_time():
            try:
                self._find_parts()
                self._run_parts()
            finally:
                self._end_child()
        self._say_what_is_left()
        return self._recording

    @property
    def _record(self) -> StepRecord:
        return self._recording.step(self._step.name)

    def _store(self, record: StepRecord) -> None:
        self._recording = self._recording.with_step(record)
        self._conductor.keep(self._recording)

    def _has_time(self) -> bool:
        return self._conductor.left_s >= self._step.usual_s

    def _find_parts(self) -> None:
        """Ask which parts there are; what goes wrong stands in the record as a part of its own."""
        try:
            answer = self._started()
        except (EndedError, TimeoutError, ValueError) as error:
            if self._conductor.left_s <= 0:
                return
            answer = {"status": "failed", "message": _in_words(error, _START_S)}
        names = answer.get("parts")
        if isinstance(names, list) and names and fits(tuple(names), tuple[str, ...]):
            self._store(self._record.wanting(tuple(names)))
            self._knows_parts = True
        else:
            trouble = {"status": "failed", "message": "it names no parts", **answer}
            self._note(self._part(self._step.name, trouble, 0.0))

    def _started(self) -> dict[str, Any]:
        """Start a child, and return what it says of its parts."""
        self._child = Child(self._step.module, self._conductor.log)
        return self._child.ask(asdict(self._conductor.place), min(_START_S, self._conductor.left_s))

    def _run_parts(self) -> None:
        for name in self._record.outstanding if self._knows_parts else ():
            if not self._has_time():
                return
            if self._record.begun.get(name, 0) >= MOST_TRIES:
                self._note(self._given_up(name))
                continue
            part = self._ended(name)
            if part is None:  # the deadline came first
                return
            self._note(part)
            if part.status == "failed":  # after an error of CUDA nothing works any more in that process
                self._end_child()
            if part.status == "cut short":
                return

    def _note(self, part: Part) -> None:
        """Keep what a part came to, and tell it."""
        self._store(self._record.with_part(part))
        self._tell(part)

    def _given_up(self, name: str) -> Part:
        """Return what to record of a part that was begun too often."""
        message = f"begun {MOST_TRIES} times, and each time everything was ended from outside"
        return self._part(name, {"status": "cut short", "message": message}, 0.0)

    def _ended(self, name: str) -> Part | None:
        """Run a part; return what it came to, or None if the deadline ended it."""
        self._store(self._record.beginning(name))
        start, limit_s = time.monotonic(), self._step.limit_s
        try:
            if self._child is None:
                self._started()
            assert self._child is not None
            answer = self._child.ask(name, min(limit_s, self._conductor.left_s))
        except TimeoutError as error:
            self._end_child()
            if self._conductor.left_s <= 0:
                self._store(self._record.never_begun(name))
                return None
            answer = {"status": "cut short", "message": _in_words(error, limit_s)}
        except (EndedError, ValueError) as error:
            answer = {"status": "failed", "message": _in_words(error, limit_s)}
        except KeyboardInterrupt:  # somebody's wish, and no fault of the part
            self._store(self._record.never_begun(name))
            raise
        return self._part(name, answer, time.monotonic() - start)

    def _part(self, name: str, answer: dict[str, Any], seconds: float) -> Part:
        """Make a part of an answer, which may be nonsense."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        part = Part(name, "failed", now, self._conductor.commit, round(seconds, 1))
        if "status" in answer:
            status: PartStatus = next((each for each in _TROUBLES if each == answer["status"]), "failed")
            return replace(part, status=status, message=" ".join(str(answer.get("message", "")).split()))
        try:
            return replace(part, status="done", **vars(found_in(answer)))
        except (TypeError, KeyError, AttributeError) as error:
            return replace(part, message=_in_words(error, 0.0))

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None

    def _tell(self, part: Part) -> None:
        wrong = sum(not agreement.agrees for agreement in part.agreements)
        words = f"{wrong} of {len(part.agreements)} disagree" if wrong else part.status
        why = f": {part.message}" if part.message else ""
        self._conductor.say(f"{self._step.name}: {part.name}: {words}{why} ({part.seconds:.0f} s)")

    def _say_what_is_left(self) -> None:
        record = self._record
        left = len(record.untried)
        if left or not (record.wanted or record.parts):
            count = f" ({left} of {len(record.wanted)} parts)" if left else ""
            self._conductor.left_for_next.append(self._step.name + count)


def _in_words(error: Exception, limit_s: float) -> str:
    if isinstance(error, EndedError):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"it took longer than {limit_s:g} seconds"
    return f"it answered with something else than a result ({type(error).__name__}: {error})"
