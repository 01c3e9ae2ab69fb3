"""Which lessons' cores were done, and when: a section of the progress file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amp_lessons.course.keeping.practice import utc_now
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "cores"
_KEPT = Section(SECTION, "which lessons you have done")


@dataclass(frozen=True)
class Cores:
    """When the core of each lesson was done (UTC, ISO 8601), by its number.

    ``message`` names a damaged file, if there was one.
    """

    done_at: Mapping[str, str]
    message: str = ""


def read() -> Cores:
    """Return the cores that were done. Raises ProgressError as ``progress.read`` does."""
    return Cores(*_KEPT.read(_checked))


def record(number: str) -> str:
    """Note that the core of a lesson was done, if it was not before; return as ``progress.record_try``."""
    found = read()
    if number in found.done_at:
        return found.message
    now = utc_now().isoformat(timespec="seconds")
    said = _KEPT.change(lambda kept: {number: now} | _checked(kept))
    return " ".join(filter(None, (found.message, said)))


def _checked(kept: Any) -> dict[str, str]:
    """Read the section, every entry checked."""
    found = {} if kept is None else kept
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise DamagedError
    return found
