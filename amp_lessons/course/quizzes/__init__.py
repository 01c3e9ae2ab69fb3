"""The questions that lessons ask: data in ``*.json`` beside this file, one file per lesson."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources

from amp_lessons._base.text.nearest import did_you_mean


@dataclass(frozen=True)
class Choice:
    """One answer that a learner can choose, and why it is right or wrong."""

    text: str
    why: str
    right: bool = False


@dataclass(frozen=True)
class Question:
    """A question with its choices, of which exactly one is right."""

    id: str
    text: str
    choices: tuple[Choice, ...]

    def __post_init__(self) -> None:
        """Refuse a question that has no answer, or two."""
        right = sum(choice.right for choice in self.choices)
        if right != 1 or len(self.choices) < 2:
            raise ValueError(f"question {self.id!r} has {len(self.choices)} choices, {right} of them right")

    @property
    def answer(self) -> Choice:
        """Return the right choice."""
        return next(choice for choice in self.choices if choice.right)


@functools.cache
def questions() -> dict[str, Question]:
    """Return every question of the course by its id, in the order of the lessons."""
    return {each.id: each for asked in _by_lesson().values() for each in asked}


def lessons() -> tuple[str, ...]:
    """Return the numbers of the lessons that ask questions."""
    return tuple(_by_lesson())


def of_lesson(number: str) -> tuple[Question, ...]:
    """Return the questions of a lesson, by its number, ``"03"``; none where there is no such lesson."""
    return _by_lesson().get(number, ())


@functools.cache
def _by_lesson() -> dict[str, tuple[Question, ...]]:
    """Read every file; its name begins with its lesson's number."""
    found = (path for path in resources.files(__name__).iterdir() if path.name.endswith(".json"))
    files = sorted(found, key=lambda path: path.name)
    return {path.name[:2]: tuple(map(_question, json.loads(path.read_text("utf-8")))) for path in files}


def question(id: str) -> Question:
    """Return the question called ``id``, for example ``"scaling.floor"``.

    Raises KeyError for an unknown one; the message names the nearest ones.
    """
    try:
        return questions()[id]
    except KeyError:
        raise KeyError(f"no question is called {id!r}; {did_you_mean(id, questions())}") from None


def _question(entry: dict[str, object]) -> Question:
    choices = tuple(Choice(**choice) for choice in entry["choices"])  # type: ignore[attr-defined]
    return Question(str(entry["id"]), str(entry["text"]), choices)
