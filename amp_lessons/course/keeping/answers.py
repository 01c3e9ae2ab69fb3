"""How the questions of the lessons were answered at first: a section of the progress file.

The first answer says what somebody knew. Whoever tries the others afterwards reads why, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from amp_lessons._base.typed_json import made
from amp_lessons.course.keeping.practice import utc_now
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "answers"
_KEPT = Section(SECTION, "your answers to questions")


@dataclass(frozen=True)
class FirstAnswer:
    """The first answer to a question: whether it was right, and when it was given (UTC, ISO 8601).

    ``chosen`` is the text of the choice; "" where a version of the course kept it that did not note it.
    """

    right: bool
    at: str
    chosen: str = ""


@dataclass(frozen=True)
class Answers:
    """First answers by the id of the question; ``message`` names a damaged file, if there was one."""

    first: Mapping[str, FirstAnswer]
    message: str = ""


def read() -> Answers:
    """Return how questions were answered at first. Raises ProgressError as ``progress.read`` does."""
    return Answers(*_KEPT.read(_answers))


def record(question_id: str, right: bool, chosen: str = "") -> str:
    """Note an answer, ``chosen``, if it is the first; return and raise as ``progress.record_try``."""
    found = read()  # a later answer, the usual one in a lesson that is read again, writes nothing
    if question_id in found.first:
        return found.message
    answer = asdict(FirstAnswer(right, utc_now().isoformat(timespec="seconds"), chosen))

    def add(kept: Any) -> Any:
        _answers(kept)
        return {question_id: answer} | (kept or {})

    return " ".join(filter(None, (found.message, _KEPT.change(add))))


def _answers(kept: Any) -> dict[str, FirstAnswer]:
    """Read the section, every answer checked."""
    try:
        return {question_id: made(FirstAnswer, entry) for question_id, entry in (kept or {}).items()}
    except (TypeError, AttributeError) as error:
        raise DamagedError from error
