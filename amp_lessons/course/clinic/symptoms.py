"""From a symptom to its cause: ``symptoms.yaml`` beside this file has the questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from amp_lessons._base.entries import read_entries
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.course.clinic.causes import ENDS, End


@dataclass(frozen=True)
class SymptomAnswer:
    """One answer, what comes after it, and in which other words people say the same."""

    text: str
    then: SymptomQuestion | End
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class SymptomQuestion:
    """One question about a training, with the answers that tell causes apart."""

    text: str
    answers: tuple[SymptomAnswer, ...]


@dataclass(frozen=True)
class Path:
    """One way through the questions: what was answered to each, and the end."""

    answered: tuple[tuple[SymptomQuestion, SymptomAnswer], ...]
    end: End


def paths(question: SymptomQuestion | End | None = None) -> Iterator[Path]:
    """Yield every path from a question, by default the first, to a leaf."""
    at = SYMPTOMS if question is None else question
    if isinstance(at, End):
        yield Path((), at)
        return
    for answer in at.answers:
        for rest in paths(answer.then):
            yield Path(((at, answer), *rest.answered), rest.end)


@dataclass(frozen=True)
class Entry:
    """A question with a name, as the file has it: an answer leads to a name, or to a question without one.

    ``said`` has lists of other words for some of the answers.
    """

    name: str
    asks: str
    answers: dict[str, Any]
    said: dict[str, Any] = field(default_factory=dict)


def _tree(entries: tuple[Entry, ...]) -> SymptomQuestion:
    """Return the last question with all that its answers lead to.

    Raises ValueError for a name that no end has, and no question that stands above.
    """
    known: dict[str, SymptomQuestion | End] = dict(ENDS)
    question = SymptomQuestion("", ())
    for entry in entries:
        question = known[entry.name] = _question(entry.asks, entry.answers, known, entry.said)
    return question


def _question(
    asks: str,
    answers: Mapping[str, Any],
    known: Mapping[str, SymptomQuestion | End],
    said: Mapping[str, Any] = MappingProxyType({}),
) -> SymptomQuestion:
    def follow(then: Any) -> SymptomQuestion | End:
        if isinstance(then, dict) and then.keys() == {"asks", "answers"}:
            return _question(then["asks"], then["answers"], known)
        if isinstance(then, str) and then in known:
            return known[then]
        raise ValueError(
            f"symptoms.yaml, {asks!r}: {then!r} is no end, and no question above; {did_you_mean(then, known)}"
        )

    for text in said.keys() - answers.keys():
        raise ValueError(f"symptoms.yaml, {asks!r}: {text!r} is no answer; {did_you_mean(text, answers)}")
    found = (SymptomAnswer(text, follow(then), tuple(said.get(text, ()))) for text, then in answers.items())
    return SymptomQuestion(asks, tuple(found))


SYMPTOMS = _tree(read_entries("amp_lessons.course.clinic", ["symptoms.yaml"], Entry))
