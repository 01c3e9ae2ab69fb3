"""What an interview question is."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_lessons._base.text.words import superscripts
from amp_lessons.course.interview.proved import proved
from amp_lessons.course.interview.proving import Proof, proof_cell, prove_cell

LEVELS = ("entry", "senior", "staff")


@dataclass(frozen=True)
class FollowUp:
    """What an interviewer asks after one question and no other, ``after``, whose proof shows this one too.

    ``points`` are what a good answer covers.
    """

    after: str
    question: str
    answer_template: str
    points: tuple[str, ...]

    @property
    def answer(self) -> str:
        """What a good candidate says, with numbers that the proof of the question before has computed."""
        return fill(self.answer_template, proved(self.after).values)


@dataclass(frozen=True)
class Question:
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
    def question(self) -> str:
        """What the interviewer asks."""
        if not self.asks_for_a_number:
            return self.question_template
        return fill(self.question_template, self.proved.values)

    @property
    def answer(self) -> str:
        """What a good candidate says, with the numbers that the proof has computed on this machine.

        Where the proof fails, ``…`` stands in their place.
        """
        return fill(self.answer_template, self.proved.values)

    @property
    def proof(self) -> str:
        """The source of the cell that shows that the answer is true."""
        return proof_cell(self.id, self._seed)

    @property
    def proved(self) -> Proof:
        """The proof as it was last run with all that it depends on, today or earlier."""
        return proved(self.id, self._seed)

    def prove(self) -> Proof:
        """Run the proof, once per process."""
        return prove_cell(self.id, self._seed)

    @property
    def _seed(self) -> int | None:
        return 0 if self.asks_for_a_number else None


def fill(template: str, values: Mapping[str, Any]) -> str:
    """Return ``template`` with a value in place of each ``{name}`` or ``{name:format}``, ``…`` if none.

    Exponents are raised, those of the values too.
    """
    filled = "".join(
        text + ("" if name is None else format(values[name], spec or "") if name in values else "…")
        for text, name, spec, _ in string.Formatter().parse(template)
    )
    return superscripts(filled)


def placeholders(template: str) -> set[str]:
    """Return the names that ``template`` wants filled."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
