"""Interviews against a clock: one question at a time, follow-ups by what was covered, a report."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

from amp_lessons._base.arguments import require_whole
from amp_lessons._base.text.words import counted
from amp_lessons.course import progress
from amp_lessons.course.exercises import Exercise, Report
from amp_lessons.course.interview.bank import LEVELS, Round, design, known
from amp_lessons.course.interview.deck import suggested_grade
from amp_lessons.course.interview.planning import QUESTION_MINUTES, Asked, another, follow_up, planned
from amp_lessons.course.interview.reporting import MockReport, Turn
from amp_lessons.course.progress import Learner


def time_left(seconds: float) -> str:
    """Describe how much time is left, or over below 0: in minutes, the last and the first one in seconds."""
    amount = abs(seconds)
    told = counted(round(amount / 60), "minute") if amount >= 60 else counted(round(amount), "second")
    return f"{told} {'left' if seconds >= 0 else 'over'}"


class Interview(ABC):
    """Questions against a clock. ``asked`` is what the interviewer wants to know now, None once it is over.

    Answer by ``answer``, with the points of the rubric that were covered, by ``guess`` where a number is
    asked for, or by ``hand_in`` where code is. ``closed`` are the turns whose model answers may be read now:
    a question's, and those of what followed from it, once nothing follows any more.
    """

    def __init__(self, plan: Iterable[Asked], minutes: int, clock: Callable[[], float]) -> None:
        """Start the clock, and ask the first question of the plan."""
        self.minutes, self.clock, self.message = minutes, clock, ""
        self.turns: list[Turn] = []
        self.closed: tuple[Turn, ...] = ()
        self._coming = list(plan)
        self._thread: tuple[Turn, ...] = ()
        self._hand_ins: tuple[Report, ...] = ()
        # How it stood before each answer, for who takes that back: asked, coming, thread, and since when
        self._before: list[tuple[Asked, list[Asked], tuple[Turn, ...], float]] = []
        self._ended = False
        self._started = self._turned = clock()
        self.asked: Asked | None = self._coming.pop(0)

    @property
    def left_s(self) -> float:
        """How many seconds are left; never less than 0."""
        return max(0.0, 60 * self.minutes - (self.clock() - self._started))

    def answer(self, *covered: int) -> None:
        """Record which points of what was asked were covered, by their places from 0: none, some, all.

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
        """Hand in code: the report of its check, or whether it passed. Raises ValueError elsewhere.

        A report that has not passed is noted, and the code may be handed in again; False gives it up.
        """
        asked = self._asked("code", "hand_in()")
        assert asked.exercise is not None
        if isinstance(passed, Report):
            if passed.exercise_id != asked.exercise.id:
                raise ValueError(f"asked for is {asked.exercise.id}; this report is of {passed.exercise_id}")
            self._hand_ins += (passed,)
            if not passed.passed:
                return
        self._turn((0,) if passed else (), hand_ins=self._hand_ins)

    @property
    def answers(self) -> tuple[tuple[str, str], ...]:
        """Heading and text of each model answer that may be read now; one that holds twice, once.

        In a round of system design all come at its end: each has its question above it, and its points below.
        """
        found: dict[str, str] = {}
        for turn in self.closed:
            asked = turn.asked
            then = "And to what followed" if found else "A model answer"
            if asked.stage:
                points = "; ".join(asked.points)
                whole = f"{asked.text}\n\n{asked.answer}\n\nIt covers: {points}."
                found[whole] = asked.topic.capitalize()
            else:
                found.setdefault(asked.answer, then)
        return tuple((heading, answer) for answer, heading in found.items())

    def take_back(self) -> bool:
        """Ask again what was answered last, as if it had not been; False where nothing was answered.

        The clock runs on.
        """
        if not self._before:
            return False
        self.asked, self._coming, self._thread, self._turned = self._before.pop()
        self._ended, self.closed, turn = False, (), self.turns.pop()
        self._hand_ins = tuple(each for each in turn.hand_ins if not each.passed)
        if turn.asked.question_id:
            self._change(lambda kept: kept.take_back(turn.asked.question_id))
        return True

    @property
    def has_another(self) -> bool:
        """Whether all that was planned is answered, and there is time and a question left for who wants."""
        return self._another() is not None

    def _another(self) -> Asked | None:
        """Draw a question beside the plan; there is none."""
        return None

    def ask_another(self) -> None:
        """Ask one more question, beside the plan. Raises ValueError where ``has_another`` says no."""
        drawn = self._another()
        if drawn is None:
            raise ValueError("another question is asked after the last one, where five minutes are left")
        self.asked, self.closed = drawn, ()

    def end(self) -> MockReport:
        """End it here, and return the report; code that was handed in and did not pass stands in it.

        The model answers to what was answered may be read now, although something would have followed.
        """
        if self._hand_ins:
            self._turn((), hand_ins=self._hand_ins)
        if self._thread:
            self.closed, self._thread = self._thread, ()
        self._coming, self.asked, self._ended = [], None, True
        return self.report

    @property
    @abstractmethod
    def report(self) -> MockReport:
        """What went well and what to repeat, so far."""

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

    def _turn(self, covered: tuple[int, ...], said: str = "", hand_ins: tuple[Report, ...] = ()) -> None:
        """Write down the answer, keep it, and go on to what it leads to."""
        assert self.asked is not None
        turn = Turn(self.asked, covered, self.clock() - self._turned, said, hand_ins)
        self._before.append((self.asked, list(self._coming), self._thread, self._turned))
        self._turned, self._hand_ins = self._turned + turn.seconds, ()
        self.turns.append(turn)
        self._keep(turn)
        if following := self._follow_up(turn):
            self._coming.insert(0, following)
        self.asked = self._coming.pop(0) if self._coming and self.left_s else None
        thread = (*self._thread, turn)
        goes_on = self.asked is not None and bool(self.asked.follows)
        self._thread, self.closed = (thread, ()) if goes_on else ((), thread)

    def _follow_up(self, turn: Turn) -> Asked | None:
        """Return what is asked after an answer beside the plan; nothing is."""
        return None

    def _keep(self, turn: Turn) -> None:
        """Keep it at once: an interrupted interview loses nothing. It goes on where that is impossible."""
        if turn.asked.question_id:
            grade = suggested_grade(len(turn.covered), len(turn.asked.points))
            self._change(lambda kept: kept.review(turn.asked.question_id, grade, in_mock=True))

    def _change(self, act: Callable[[Learner], None]) -> None:
        """Change the progress file, and note what is wrong with it."""
        self.message = progress.try_changing(act) or self.message


class Mock(Interview):
    """An interview at a level, of so many minutes. The same seed and the same answers lead to the same one.

    What was asked is kept among what was practised, answer by answer.
    """

    def __init__(
        self,
        level: str = "senior",
        minutes: int = 45,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        topics: Sequence[str] = (),
    ) -> None:
        """Draw the questions, of ``topics`` if there are any, and start the clock.

        Raises ValueError for an unknown level or topic.
        """
        known(level, LEVELS, "level")
        require_whole(minutes, "minutes", least=5)
        self.level, self.seed, self.topics = level, seed, tuple(topics)
        super().__init__(planned(level, minutes, seed, self.topics), minutes, clock)

    def __repr__(self) -> str:
        return f"Mock({self.level!r}, {self.minutes}, {self.seed})"

    @property
    def report(self) -> MockReport:
        """What went well and what to repeat, so far."""
        return MockReport(self.level, self.minutes, self.seed, tuple(self.turns), self.message)

    def _follow_up(self, turn: Turn) -> Asked | None:
        known = {each.question_id for each in (*(turn.asked for turn in self.turns), *self._coming)}
        return follow_up(turn.asked, turn.covered, known, self.seed)

    def _another(self) -> Asked | None:
        if self.asked or self._ended or self.left_s < 60 * QUESTION_MINUTES:
            return None
        return another(self.level, [turn.asked for turn in self.turns], self.seed, self.topics)


class DesignRound(Interview):
    """A round of system design: constraints come in stages, and all model answers after the last.

    ``design_id`` is one of ``DESIGNS``. Nothing of it is kept: it is no card.
    """

    def __init__(self, design_id: str = "pretrain", clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock. Raises KeyError for an unknown design."""
        self.design = design(design_id)
        super().__init__(_stages(self.design), self.design.minutes, clock)

    def __repr__(self) -> str:
        return f"DesignRound({self.design.id!r})"

    @property
    def report(self) -> MockReport:
        """What went well and what to repeat, so far."""
        what = f"System design: {self.design.title}"
        return MockReport("", self.minutes, 0, tuple(self.turns), self.message, what)


def _stages(of: Round) -> Iterator[Asked]:
    """Yield the stages, as questions that follow from the first: their answers wait for the last."""
    before: tuple[str, ...] = ()
    for number, stage in enumerate(of.stages, start=1):
        yield Asked(
            "question",
            stage.question if before else f"{of.brief} {stage.question}",
            stage.points,
            stage.title,
            "",
            follows=of.id if before else "",
            answered_by=stage,
            minutes=stage.minutes,
            stage=f"stage {number} of {len(of.stages)}",
            before=before,
        )
        before = (*(before or (of.brief,)), stage.question)
