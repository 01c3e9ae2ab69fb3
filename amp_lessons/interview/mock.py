"""A mock interview: one question at a time, a clock, follow-ups that depend on what was covered, a report."""

from __future__ import annotations

import random
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from amp_lessons.arguments import require_whole
from amp_lessons.exercises import Exercise, Report
from amp_lessons.interview.bank import follow_ups, question
from amp_lessons.interview.deck import suggested_grade
from amp_lessons.interview.planning import Asked, asked_question, planned
from amp_lessons.interview.questions import LEVELS, FollowUp, Question
from amp_lessons.keeping import practice
from amp_lessons.keeping.progress import ProgressError
from amp_lessons.text import prose
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
    """Describe how much of an interview is left: in minutes, at last in seconds."""
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


_STRONG = 2 / 3  # of a topic's points
_WIDTH = 80


@dataclass(frozen=True)
class MockReport:
    """The turns of an interview; ``message`` says what is wrong with the progress file, if anything is."""

    level: str
    minutes: int
    seed: int
    turns: tuple[Turn, ...]
    message: str = ""

    @property
    def heading(self) -> str:
        """What it was, and how much of it was covered."""
        covered = sum(len(turn.covered) for turn in self.turns)
        points = sum(len(turn.asked.points) for turn in self.turns)
        spent = sum(turn.seconds for turn in self.turns) / 60
        return (
            f"Mock interview, level {self.level}, seed {self.seed}: {len(self.turns)} questions in "
            f"{spent:.0f} of {self.minutes} minutes, {covered} of {points} points covered"
        )

    @property
    def points(self) -> float:
        """The share of all the points that was covered, from 0.0 to 1.0: for graders."""
        asked = sum(len(turn.asked.points) for turn in self.turns)
        return sum(len(turn.covered) for turn in self.turns) / asked if asked else 0.0

    @property
    def shares(self) -> dict[str, float]:
        """The share of the points that was covered, by topic."""
        found: dict[str, tuple[int, int]] = {}
        for turn in self.turns:
            covered, points = found.get(turn.asked.topic, (0, 0))
            found[turn.asked.topic] = covered + len(turn.covered), points + len(turn.asked.points)
        return {topic: covered / points for topic, (covered, points) in found.items()}

    @property
    def strengths(self) -> tuple[str, ...]:
        """The topics of which most was covered."""
        return tuple(topic for topic, share in self.shares.items() if share >= _STRONG)

    @property
    def to_repeat(self) -> tuple[Turn, ...]:
        """The turns in which something was left out, the weakest first."""
        return tuple(sorted((turn for turn in self.turns if turn.missed), key=lambda turn: turn.share))

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each heading with its sentences."""
        shares = self.shares
        strong = [f"{_named(topic)}: {100 * shares[topic]:.0f} % of the points" for topic in self.strengths]
        yield "Strengths", strong or ["None yet: two thirds of a topic's points make one."]
        yield "To repeat", [_to_repeat(turn) for turn in self.to_repeat] or ["Nothing was left out."]
        yield "What was asked", [_told(turn) for turn in self.turns] or ["Nothing."]

    def __str__(self) -> str:
        parts = [_wrapped(self.heading)]
        for title, sentences in self.sections():
            parts += [f"\n{title}", *(_wrapped(each, "- ", "  ") for each in sentences)]
        return "\n".join([*parts, *([f"\n{self.message}"] if self.message else [])])

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}

    def as_markdown(self) -> str:
        """Render headings and lists."""
        parts = [f"**{prose.as_markdown(self.heading)}**"]
        for title, sentences in self.sections():
            parts += [f"**{title}**", "\n".join(f"- {prose.as_markdown(each)}" for each in sentences)]
        return "\n\n".join([*parts, *([prose.as_markdown(self.message)] if self.message else [])])

    def as_html(self, level: str = "h4") -> Markup:
        """Render headings of ``level`` and lists."""
        parts = [Markup("<p><strong>{}</strong></p>").format(self.heading)]
        for title, sentences in self.sections():
            items = Markup("").join(Markup("<li>{}</li>").format(prose.as_html(each)) for each in sentences)
            heading = Markup("<{0}>{1}</{0}>").format(Markup(level), title)
            parts.append(heading + Markup("<ul>{}</ul>").format(items))
        return Markup("\n").join([*parts, Markup("<p>{}</p>").format(self.message)])


def _to_repeat(turn: Turn) -> str:
    what = turn.asked.text if turn.asked.exercise is None else turn.asked.exercise.title
    if turn.asked.follows and not turn.asked.question_id:
        what = f"{question(turn.asked.follows).question} {what}"
    return f"{what} (lesson {turn.asked.lesson}): {'; '.join(turn.missed)}"


def _told(turn: Turn) -> str:
    covered = f"{len(turn.covered)} of {len(turn.asked.points)} points"
    return f"{turn.asked.text}{_said(turn)} ({covered}, {turn.seconds:.0f} s)"


def _said(turn: Turn) -> str:
    """Repeat the number that was guessed, and put it right."""
    if turn.asked.estimate is None:
        return ""
    right = f"; it is {turn.asked.estimate.value_in_words}" if turn.missed else ""
    return f" You said {turn.said}{right}."


def _named(topic: str) -> str:
    return topic.replace("_", " ")


def _wrapped(text: str, first: str = "", then: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False)


def follow_up(asked: Asked, covered: tuple[int, ...], known: set[str], seed: int) -> Asked | None:
    """Return what comes after ``asked``; None where a good interviewer changes the subject.

    All of it covered: something deeper, or what people wrongly believe, to be put right. Some of it: the
    first point that was left out. None of it: nothing, for now one knows. ``known`` are questions that were
    asked, or will be. What is a follow-up itself has none.
    """
    if asked.follows or asked.kind == "code" or not covered:
        return None
    missed = [point for i, point in enumerate(asked.points) if i not in covered]
    return _about(missed[0], asked) if missed else _deeper(asked, known, seed)


def _about(point: str, asked: Asked) -> Asked:
    text = f"You have not come to this yet: {point}. What can you say about it?"
    answer = question(asked.question_id).answer
    return Asked(
        "question",
        text,
        (point,),
        asked.topic,
        asked.lesson,
        follows=asked.question_id,
        model_answer=answer,
    )


def _deeper(asked: Asked, known: set[str], seed: int) -> Asked:
    """Ask one of the follow-ups in the bank that is new, or let the candidate put a wrong belief right."""
    rng = random.Random(f"{seed} {asked.question_id}")
    of = question(asked.question_id)
    deeper = [each for each in follow_ups(of.id) if isinstance(each, FollowUp) or each.id not in known]
    if deeper:
        return _asked(rng.choice(deeper), of)
    text = f"A colleague says: “{rng.choice(of.wrong_beliefs)}” What do you answer?"
    points = ("said that it is wrong", "said why")
    return Asked("question", text, points, of.topic, of.lesson, follows=of.id, model_answer=of.answer)


def _asked(each: Question | FollowUp, of: Question) -> Asked:
    """Return what the interviewer asks after ``of``, from the bank or for it alone."""
    if isinstance(each, Question):
        return asked_question(each, follows=of.id)
    return Asked(
        "question",
        each.question,
        each.points,
        of.topic,
        of.lesson,
        follows=of.id,
        model_answer=each.answer,
    )
