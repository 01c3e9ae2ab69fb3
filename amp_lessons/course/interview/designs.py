"""Rounds of system design: something to build, with constraints that come in stages, and a rubric for each.

The rounds are data in ``designs.yaml`` beside this file; the numbers in their questions and answers are
computed by the functions of ``proofs/designs.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from amp_lessons._base.entries import LOADER
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.interview import proofs
from amp_lessons.course.interview.proofs import Proof, fill


@dataclass(frozen=True)
class Stage:
    """A question of a round, in ``minutes``; ``points`` are what a good answer covers."""

    of: str = field(repr=False)
    title: str
    minutes: int
    question_template: str
    answer_template: str
    points: tuple[str, ...]

    @property
    def question(self) -> str:
        """What the interviewer adds, or asks."""
        return fill(self.question_template, design(self.of).proved.values)

    @property
    def answer(self) -> str:
        """What a good candidate says, with computed numbers."""
        return fill(self.answer_template, design(self.of).proved.values)


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


def _read() -> tuple[Round, ...]:
    text = resources.files("amp_lessons.course.interview").joinpath("designs.yaml").read_text("utf-8")
    return tuple(map(_round, yaml.load(text, LOADER)))


def _round(entry: dict[str, Any]) -> Round:
    stages = (
        Stage(
            entry["id"],
            each["title"],
            each["minutes"],
            each["question"],
            each["answer"],
            tuple(each["points"]),
        )
        for each in entry["stages"]
    )
    return Round(entry["id"], entry["title"], entry["brief"], tuple(stages), tuple(entry["source"]))


DESIGNS: tuple[Round, ...] = _read()


def design(id: str) -> Round:
    """Return the round called ``id``. Raises KeyError for an unknown one; the message names the nearest."""
    known = {each.id: each for each in DESIGNS}
    if id not in known:
        raise KeyError(f"nothing to design is called {id!r}; {did_you_mean(id, known)}")
    return known[id]
