"""Code rounds of interviews: what was written, tried and asked for in each, a section of the progress file.

What a round is kept by names its task and its seed: who begins the same again goes on where it was left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from amp_lessons._base.typed_json import made
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "rounds"
_KEPT = Section(SECTION, "your code rounds")
_MOST_ROUNDS = 30  # each holds what was written, and the file is written anew at every try
_MOST_CHARACTERS = 50_000


@dataclass(frozen=True)
class Try:
    """One time that code was handed in: after how many seconds, whether it passed, what the check said."""

    seconds: float
    passed: bool
    said: str


@dataclass(frozen=True)
class Round:
    """A round: when it was begun (UTC, ISO 8601), how many seconds were used, and what was done in them.

    ``source`` is what was handed in last, ``pointed`` what was said of a review; ``ended_at`` is "" until it
    is over.
    """

    minutes: int
    began_at: str
    seconds: float = 0.0
    hints: int = 0
    tries: tuple[Try, ...] = ()
    pointed: str = ""
    source: str = ""
    ended_at: str = ""


@dataclass(frozen=True)
class Rounds:
    """Rounds by what they are kept by, the newest last; ``message`` names a damaged file, if any."""

    kept: Mapping[str, Round]
    message: str = ""


def read() -> Rounds:
    """Return all rounds that are kept. Raises ProgressError as ``progress.read`` does."""
    return Rounds(*_KEPT.read(_checked))


def record(key: str, kept: Round) -> str:
    """Keep a round as it stands, and let go of the oldest; return and raise as ``progress.record_try``."""
    entry = asdict(kept) | {"source": kept.source[:_MOST_CHARACTERS]}

    def add(found: Any) -> Any:
        _checked(found)
        others = {name: each for name, each in (found or {}).items() if name != key}
        newest = list(others.items())[-(_MOST_ROUNDS - 1) :]
        return {**dict(newest), key: entry}

    return _KEPT.change(add)


def _checked(found: Any) -> dict[str, Round]:
    """Read the section, every round checked."""
    try:
        return {key: made(Round, entry) for key, entry in (found or {}).items()}
    except (TypeError, AttributeError) as error:
        raise DamagedError from error
