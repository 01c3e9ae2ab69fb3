"""Questions to be answered on paper, with numbers drawn by a seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from amp_lessons.interview.bank import QUESTIONS, question
from amp_lessons.interview.proving import Proof, prove_cell
from amp_lessons.interview.questions import Question, fill


@dataclass(frozen=True)
class Estimate:
    """A question of the topic ``estimation`` with its own numbers; ``of`` is the question that it is made of.

    ``value`` is the answer as a number, in ``unit``, computed by the course's calculators. A guess counts
    if it is within ``tolerance`` of it, a share: on paper one rounds.
    """

    of: Question
    seed: int

    def prove(self) -> Proof:
        """Run the calculation."""
        return prove_cell(self.of.id, self.seed)

    @property
    def question(self) -> str:
        """What is asked."""
        return fill(self.of.question_template, self.prove().values)

    @property
    def answer(self) -> str:
        """How a good candidate gets there."""
        return fill(self.of.answer_template, self.prove().values)

    @property
    def value(self) -> float:
        """The answer as a number."""
        return float(self.prove().values["value"])

    @property
    def unit(self) -> str:
        """What ``value`` counts, empty for a number without a unit."""
        return self.of.unit

    @property
    def value_in_words(self) -> str:
        """The answer with its unit, to four digits."""
        return f"{self.value:.4g} {self.unit}".strip()

    @property
    def tolerance(self) -> float:
        """The share of ``value`` by which a guess may be off."""
        return self.of.tolerance

    def accepts(self, guess: float) -> bool:
        """Return whether ``guess``, in ``unit``, is near enough."""
        return math.isfinite(guess) and abs(guess - self.value) <= self.tolerance * abs(self.value)


def estimate(id: str, seed: int) -> Estimate:
    """Return the estimate called ``id`` with the numbers that ``seed`` draws.

    Raises KeyError for an unknown question, and ValueError for one that asks for no number; the message
    names those that do.
    """
    asked = question(id)
    if not asked.asks_for_a_number:
        known = ", ".join(other.id for other in QUESTIONS if other.asks_for_a_number)
        raise ValueError(f"{id!r} asks for no number; these do: {known}")
    return Estimate(asked, seed)
