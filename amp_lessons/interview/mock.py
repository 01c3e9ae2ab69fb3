"""A mock interview: one question at a time, a clock, and follow-ups that depend on what was covered."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from amp_lessons.arguments import require_whole
from amp_lessons.exercises import Exercise, Report
from amp_lessons.interview.deck import suggested_grade
from amp_lessons.interview.following import follow_up
from amp_lessons.interview.mock_report import MockReport
from amp_lessons.interview.planning import Asked, planned
from amp_lessons.interview.questions import LEVELS
from amp_lessons.keeping import practice
from amp_lessons.keeping.progress import ProgressError
from amp_lessons.text.nearest import did_you_mean
from amp_lessons.text.words import counted


@dataclass(frozen=True)
class Turn:
    """What was asked, which of its points were covered (by place, from 0), and how long that took."""

    asked: Asked
    covered: tuple[int, ...]
    seconds: float
    said: str = ""

    @property
    def missed(self) -> tuple[str, ...]:
        """The points that were not covered."""
        return tuple(point for i, point in enumerate(self.asked.points) if i not in self.covered)

    @property
    def share(self) -> float:
        """How much of it was covered, from 0 to 1."""
        return len(self.covered) / len(self.asked.points)


def time_left(seconds: float) -> str:
    """Say how much of an interview is left: in minutes, at last in seconds."""
    if seconds >= 60:
        count, unit = round(seconds / 60), "minute"
    else:
        count, unit = round(seconds), "second"
    return f"{counted(count, unit)} left"


@dataclass
class Mock:
    """An interview at a level, of so many minutes. The same seed and the same answers lead to the same one.

    ``asked`` is what the interviewer wants to know now, None once it is over. Answer by ``answer``, with the
    points of the rubric that were covered, by ``guess`` where a number is asked for, or by ``hand_in`` where
    code is. What was asked is kept among what was practised, answer by answer.
    """

    level: str = "senior"
    minutes: int = 45
    seed: int = 0
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        """Draw the questions, and start the clock. Raises ValueError for an unknown level."""
        if self.level not in LEVELS:
            raise ValueError(f"there is no level {self.level!r}; {did_you_mean(self.level, LEVELS)}")
        require_whole(self.minutes, "minutes", least=5)
        self.turns: list[Turn] = []
        self.message = ""
        self._coming = list(planned(self.level, self.minutes, self.seed))
        self.number = len(self._coming)
        self._started = self._turned = self.clock()
        self.asked: Asked | None = self._coming.pop(0)

    @property
    def left_s(self) -> float:
        """How many seconds are left; never less than 0."""
        return max(0.0, 60 * self.minutes - (self.clock() - self._started))

    def answer(self, *covered: int) -> None:
        """Say which points of what was asked were covered, by their places from 0: none, some, all.

        Raises ValueError where a number or code is asked for, or for a place that there is not.
        """
        asked = self._asked("question", "answer()")
        unknown = sorted(set(covered) - set(range(len(asked.points))))
        if unknown:
            raise ValueError(f"the points are numbered from 0 to {len(asked.points) - 1}; got {unknown[0]}")
        self._turn(tuple(sorted(set(covered))))

    def guess(self, number: float) -> bool:
        """Answer a question for a number; return whether it is near enough. Raises ValueError elsewhere."""
        asked = self._asked("estimate", "guess()")
        assert asked.estimate is not None
        right = asked.estimate.accepts(number)
        self._turn(
            tuple(range(len(asked.points))) if right else (), said=f"{number:g} {asked.estimate.unit}".strip()
        )
        return right

    def hand_in(self, passed: bool | Report) -> None:
        """Hand in code: the report of its check, or whether it passed. Raises ValueError elsewhere."""
        asked = self._asked("code", "hand_in()")
        assert asked.exercise is not None
        if isinstance(passed, Report):
            if passed.exercise_id != asked.exercise.id:
                raise ValueError(f"asked for is {asked.exercise.id}; this report is of {passed.exercise_id}")
            passed = passed.passed
        self._turn((0,) if passed else ())

    def end(self) -> MockReport:
        """End it here, and return the report."""
        self._coming, self.asked = [], None
        return self.report

    @property
    def report(self) -> MockReport:
        """What went well and what to repeat, so far."""
        return MockReport(self.level, self.minutes, self.seed, tuple(self.turns), self.message)

    @property
    def exercise(self) -> Exercise | None:
        """The exercise that is asked for now, if one is."""
        return self.asked.exercise if self.asked else None

    def _asked(self, kind: str, call: str) -> Asked:
        if self.asked is None:
            raise ValueError("this interview is over; .report says how it went")
        if self.asked.kind != kind:
            wanted = {"question": "answer()", "estimate": "guess()", "code": "hand_in()"}[self.asked.kind]
            raise ValueError(f"{call} does not answer this: {wanted} does")
        return self.asked

    def _turn(self, covered: tuple[int, ...], said: str = "") -> None:
        """Write down the answer, keep it, and go on to what it leads to."""
        assert self.asked is not None
        now = self.clock()
        turn = Turn(self.asked, covered, now - self._turned, said)
        self._turned = now
        self.turns.append(turn)
        self._keep(turn)
        following = follow_up(self.asked, covered, self._ids(), self.seed)
        if following is not None:
            self._coming.insert(0, following)
        self.asked = self._coming.pop(0) if self._coming and self.left_s else None

    def _keep(self, turn: Turn) -> None:
        """Keep it at once: an interrupted interview loses nothing. It goes on where that is impossible."""
        if not turn.asked.question_id:
            return
        grade = suggested_grade(len(turn.covered), len(turn.asked.points))
        try:
            said = practice.record(turn.asked.question_id, grade)
        except ProgressError as error:
            said = str(error)
        self.message = said or self.message

    def _ids(self) -> set[str]:
        """Return the questions that were asked, or will be."""
        asked = [*(turn.asked for turn in self.turns), *self._coming]
        return {each.question_id for each in asked}
