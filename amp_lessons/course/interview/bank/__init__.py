"""The questions and the rounds of system design: data in ``*.yaml`` beside this file."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from amp_lessons._base.entries import LOADER
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.interview import proofs
from amp_lessons.course.interview.proofs import Proof, fill

LEVELS = ("entry", "senior", "staff")
# In the order of the lessons; what belongs to no single one comes last.
TOPICS = (
    "formats",
    "autocast",
    "loss_scaling",
    "training_loop",
    "speed_and_memory",
    "debugging",
    "real_models",
    "many_gpus",
    "fp8",
    "language_models",
    "system_design",
    "estimation",
)


def known(chosen: str | Iterable[str], names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return what is chosen, as a tuple. Raises ValueError for an unknown name; it tells the nearest."""
    given = (chosen,) if isinstance(chosen, str) else tuple(chosen)
    for name in given:
        if name not in names:
            raise ValueError(f"there is no {what} {name!r}; {did_you_mean(name, names)}")
    return given


def in_words(topic: str) -> str:
    """Return a topic as one says it."""
    return topic.replace("_", " ")


class _Answered:
    """What is asked, and a model answer, both with the numbers that a proof has computed on this machine."""

    question_template: str
    answer_template: str

    @property
    def proved(self) -> Proof:
        """The proof as it was last run with all that it depends on, today or earlier."""
        raise NotImplementedError

    @property
    def question(self) -> str:
        """What the interviewer asks."""
        return self._filled(self.question_template)

    @property
    def answer(self) -> str:
        """What a good candidate says; where the proof fails, ``…`` stands in place of its numbers."""
        return self._filled(self.answer_template)

    def _filled(self, template: str) -> str:
        return fill(template, self.proved.values if proofs.placeholders(template) else {})


@dataclass(frozen=True)
class FollowUp(_Answered):
    """What an interviewer asks after one question and no other, ``after``, whose proof shows this one too.

    ``points`` are what a good answer covers.
    """

    after: str
    question_template: str
    answer_template: str
    points: tuple[str, ...]

    @property
    def proved(self) -> Proof:
        """The proof of the question before."""
        return question(self.after).proved


@dataclass(frozen=True)
class Question(_Answered):
    """A question of an interview, with a model answer whose numbers are computed by the proof of it.

    ``points`` are what a good answer covers, a few words each: learners grade themselves by them.
    ``weak_answer`` says what a weak one sounds like, and why it is weak. ``follow_ups`` are what an
    interviewer asks next: ids of other questions, or follow-ups to this one alone. ``source`` says where the
    facts stand, ``lesson`` is the number of the lesson that teaches them, "08" for example. Questions with a
    ``tolerance``, a share, ask for a number, in ``unit`` (empty for one without): ``estimate`` draws others.
    """

    id: str
    topic: str
    level: str
    lesson: str
    question_template: str
    answer_template: str
    points: tuple[str, ...]
    weak_answer: str
    follow_ups: tuple[str | FollowUp, ...]
    wrong_beliefs: tuple[str, ...]
    source: tuple[str, ...]
    unit: str = ""
    tolerance: float = 0.0

    @property
    def asks_for_a_number(self) -> bool:
        """Whether this is an estimate, of which a seed draws the numbers."""
        return self.tolerance > 0

    @property
    def proof(self) -> str:
        """The source of the cell that shows that the answer is true."""
        return proofs.proof_cell(self.id, self._seed)

    @property
    def proved(self) -> Proof:
        """The proof as it was last run with all that it depends on, today or earlier."""
        return proofs.proved(self.id, self.names, self._seed)

    def prove(self) -> Proof:
        """Run the proof, once per process."""
        return proofs.prove(self.id, self.names, self._seed)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values that its texts, and those of its own follow-ups, take from the proof."""
        own = (each.answer_template for each in self.follow_ups if isinstance(each, FollowUp))
        return proofs.placeholders(self.question_template, self.answer_template, *own)

    @property
    def _seed(self) -> int | None:
        return 0 if self.asks_for_a_number else None


@dataclass(frozen=True)
class Stage(_Answered):
    """A question of a round, in ``minutes``; ``points`` are what a good answer covers."""

    of: str = field(repr=False)
    title: str
    minutes: int
    question_template: str
    answer_template: str
    points: tuple[str, ...]

    @property
    def proved(self) -> Proof:
        """The proof of the round."""
        return design(self.of).proved


@dataclass(frozen=True)
class Round:
    """Something to design; ``source`` says where the facts stand."""

    id: str
    title: str
    brief_template: str
    stages: tuple[Stage, ...]
    source: tuple[str, ...]

    @property
    def minutes(self) -> int:
        """How long all stages take."""
        return sum(stage.minutes for stage in self.stages)

    @property
    def brief(self) -> str:
        """What is to be built, as the interviewer begins."""
        return fill(self.brief_template, self.proved.values)

    def prove(self) -> Proof:
        """Run the cell that computes the numbers of all stages."""
        return proofs.prove(f"designs.{self.id}", self.names)

    @property
    def proved(self) -> Proof:
        """The proof as it was last run with all that it depends on."""
        return proofs.proved(f"designs.{self.id}", self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values that its texts take from the proof."""
        asked = (text for each in self.stages for text in (each.question_template, each.answer_template))
        return proofs.placeholders(self.brief_template, *asked)


def _entries(name: str) -> Iterator[dict[str, Any]]:
    """Yield what a file says, entry by entry: lists as tuples, texts to be filled as templates."""
    text = resources.files(__name__).joinpath(f"{name}.yaml").read_text("utf-8")
    yield from map(_fields, yaml.load(text, LOADER))


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        f"{name}_template" if name in ("question", "answer", "brief") else name: (
            tuple(each if isinstance(each, str) else _fields(each) for each in value)
            if isinstance(value, list)
            else value
        )
        for name, value in entry.items()
    }


def _question(topic: str, said: dict[str, Any]) -> Question:
    id = f"{topic}.{said['id']}"
    follow_ups = tuple(each if isinstance(each, str) else FollowUp(id, **each) for each in said["follow_ups"])
    return Question(**{**said, "topic": topic, "id": id, "follow_ups": follow_ups})


QUESTIONS = tuple(_question(topic, each) for topic in TOPICS for each in _entries(topic))
DESIGNS = tuple(
    Round(**{**each, "stages": tuple(Stage(each["id"], **stage) for stage in each["stages"])})
    for each in _entries("designs")
)
LESSONS = tuple(sorted({each.lesson for each in QUESTIONS}))  # those that teach the answer to a question


@functools.cache
def _by_id() -> dict[str, Question]:
    return {question.id: question for question in QUESTIONS}


def question(id: str) -> Question:
    """Return the question called ``id``, for example ``"loss_scaling.why"``.

    Raises KeyError for an unknown one; the message names the nearest ones.
    """
    return _called(id, _by_id(), "no question")


def design(id: str) -> Round:
    """Return the round called ``id``. Raises KeyError for an unknown one; the message names the nearest."""
    return _called(id, {each.id: each for each in DESIGNS}, "nothing to design")


def _called(id: str, known: dict[str, Any], what: str) -> Any:
    if id not in known:
        raise KeyError(f"{what} is called {id!r}; {did_you_mean(id, known)}")
    return known[id]


def follow_ups(question_id: str) -> tuple[Question | FollowUp, ...]:
    """Return what an interviewer asks after a question: others of the bank, or what follows this one alone.

    Raises KeyError for an unknown question; the message names the nearest ones.
    """
    asked = question(question_id).follow_ups
    return tuple(each if isinstance(each, FollowUp) else question(each) for each in asked)


def prove(question_id: str) -> Proof:
    """Run the cell that shows that the answer to a question is true, once per process.

    Raises KeyError for an unknown question; the message names the nearest ones.
    """
    return question(question_id).prove()
