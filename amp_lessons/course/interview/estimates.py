"""Questions to be answered on paper, with numbers drawn by a seed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from amp_lessons.course.interview.bank import QUESTIONS, Question, question
from amp_lessons.course.interview.proofs import Proof, fill, prove


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
        return prove(self.of.id, self.of.names, self.seed)

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

    @property
    def wanted(self) -> str:
        """What a guess is to be: in which unit, and how near."""
        unit = f"in {self.unit}, " if self.unit else ""
        return f"{unit}within {100 * self.tolerance:.0f} %"

    def accepts(self, guess: float) -> bool:
        """Return whether ``guess``, in ``unit``, is near enough."""
        return math.isfinite(guess) and abs(guess - self.value) <= self.tolerance * abs(self.value)


def verdict(drawn: Estimate, guess: float, near: bool) -> str:
    """Say whether a guess was near enough, how it was read, and what the number is."""
    read = f"{guess:g} {drawn.unit}".strip()
    return f"{read}: near enough." if near else f"{read}: no, it is {drawn.value_in_words}."


_NUMBER = re.compile(
    r"[-−]?(?:\d[\d,_]*(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?"  # 1,200 or 3.5e9
    r"(?:\s*(?:\^|\*\*)\s*(?P<power>[-−]?\d+)|\s*[x×*·]\s*10\s*(?:\^|\*\*)\s*(?P<ten>[-−]?\d+))?"
    r"(?:\s*(?P<word>thousand|million|billion|trillion|k)\b)?"
)
_WORDS = {"k": 1e3, "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}
# What somebody may answer in, who has not seen which unit is asked for.
_OTHER_UNITS = {
    "GB": {"b", "kb", "mb", "tb", "mib", "gib", "tib", "bytes"},
    "ms": {"s", "us", "µs", "ns", "seconds"},
    "days": {"hours", "weeks", "months", "years"},
}


def read_number(text: str, unit: str = "") -> float:
    """Read the one number of an answer: ``about 500``, ``1,200 tokens/s``, ``2^14``, ``3.5 x 10^9``.

    Raises ValueError, which says what would be right, for none, for several, and for another unit.
    """
    said = text.lower().replace(unit.lower(), " ") if unit else text.lower()
    found = list(_NUMBER.finditer(said))
    if len(found) != 1:
        raise ValueError(f"“{text}” is not one number: answer with one, such as 16, 3.5e9 or 2^14")
    (number,) = found
    others = set(re.findall(r"[a-zµ]+", said[number.end() :])) & _OTHER_UNITS.get(unit, set())
    if others:
        raise ValueError(f"“{text}”: answer in {unit}")
    return _value(number)


def _value(number: re.Match[str]) -> float:
    digits = re.match(r"[-−]?[\d,_.]+(?:e[-+]?\d+)?", number[0])
    assert digits
    value = float(digits[0].replace(",", "").replace("_", "").replace("−", "-"))
    power, ten = (int((number[name] or "0").replace("−", "-")) for name in ("power", "ten"))
    try:
        raised = value**power if number["power"] else value * 10.0**ten
    except (OverflowError, ZeroDivisionError):
        raise ValueError(f"{number[0]} is no number to be had") from None
    return raised * _WORDS.get(number["word"] or "", 1.0)


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
