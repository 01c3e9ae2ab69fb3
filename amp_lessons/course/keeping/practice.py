"""What was practised and when, question by question: a section of the progress file.

Kept are the reviews alone. When something is due again follows from them (``schedule``), so that a newer
way of scheduling finds nothing in the file that it would have to convert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from amp_lessons._base.typed_json import made
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "practice"
_KEPT = Section(SECTION, "what you practised")
GRADES = ("again", "hard", "good", "easy")  # as the scheduler numbers them, from 1


@dataclass(frozen=True)
class Review:
    """One time that something was practised: when (UTC, ISO 8601), and how well, one of ``GRADES``.

    ``in_mock`` is written where it was asked in a mock interview, which takes no place among a day's new
    cards.
    """

    at: str
    grade: str
    in_mock: bool = False

    @property
    def moment(self) -> datetime:
        """When that was."""
        return datetime.fromisoformat(self.at)


@dataclass(frozen=True)
class Practice:
    """All reviews by the id of what was practised, in order; ``message`` names a damaged file, if any."""

    reviews: Mapping[str, tuple[Review, ...]]
    message: str = ""

    def of(self, id: str) -> tuple[Review, ...]:
        """Return the reviews of one question or exercise, none if it was never practised."""
        return self.reviews.get(id, ())


def utc_now() -> datetime:
    """Return this moment, to the second."""
    return datetime.now(timezone.utc).replace(microsecond=0)


def read() -> Practice:
    """Return what was practised. Raises ProgressError as ``progress.read`` does.

    Where this section alone is damaged, the file is copied before it is forgotten, and ``message`` says so.
    """
    return Practice(*_KEPT.read(_reviews))


def record(id: str, grade: str, at: datetime | None = None, *, in_mock: bool = False) -> str:
    """Note that ``id`` was practised; return what the learner should know, usually nothing.

    Raises ValueError for a grade that is none, and ProgressError if the file cannot be written.
    """
    if grade not in GRADES:
        raise ValueError(f"a grade is one of {', '.join(GRADES)}, not {grade!r}")
    review = asdict(Review((at or utc_now()).isoformat(timespec="seconds"), grade, in_mock))
    if not in_mock:  # what every version reads
        del review["in_mock"]

    def add(kept: Any) -> Any:
        _reviews(kept)
        found = kept or {}
        return {**found, id: [*found.get(id, ()), review]}

    return _KEPT.change(add)


def take_back(id: str) -> str:
    """Forget the last time that ``id`` was practised; return what the learner should know, usually nothing.

    Raises ProgressError if the file cannot be written.
    """

    def without(kept: Any) -> Any:
        _reviews(kept)
        found = dict(kept or {})
        left = found.pop(id, [])[:-1]
        return {**found, id: left} if left else found

    return _KEPT.change(without)


def _reviews(kept: Any) -> dict[str, tuple[Review, ...]]:
    """Read the section, every review checked."""
    try:
        return {id: tuple(map(_review, entries)) for id, entries in (kept or {}).items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedError from error


def _review(entry: Mapping[str, Any]) -> Review:
    review = made(Review, entry, unknown_too=True)
    if review.grade not in GRADES or review.moment.utcoffset() is None:
        raise ValueError(f"no review: {entry!r:.60}")
    return review
