"""The plan for an interview's date: until when, how long a day, and what was marked as done, on this machine.

The plan itself is not kept: it is made anew each day of what is left, so that a missed day changes it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from amp_lessons._base.typed_json import made
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "plan"
_KEPT = Section(SECTION, "the plan for your interview")


@dataclass(frozen=True)
class Planned:
    """A plan: the ``until`` and ``began`` days (ISO 8601), minutes a day, and what was marked, on which day.

    ``message`` names a damaged file, if there was one; ``until`` is "" where nothing was planned.
    """

    until: str = ""
    minutes: int = 0
    began: str = ""
    done: dict[str, str] = field(default_factory=dict)
    message: str = ""


def read() -> Planned:
    """Return what was planned. Raises ProgressError as ``progress.read`` does."""
    found, message = _KEPT.read(_checked)
    return Planned(**{**asdict(found), "message": message})


def record(until: date, minutes: int, today: date) -> str:
    """Plan for a day; what was marked stays. Return and raise as ``progress.record_try``."""

    def change(kept: Any) -> Any:
        began = _checked(kept).began or today.isoformat()
        return _entry(Planned(until.isoformat(), minutes, began, _checked(kept).done))

    return _KEPT.change(change)


def mark(names: list[str], today: date) -> str:
    """Note that these were done today; return and raise as ``progress.record_try``."""

    def change(kept: Any) -> Any:
        found = _checked(kept)
        marked = found.done | {name: today.isoformat() for name in names}
        return _entry(Planned(found.until, found.minutes, found.began, marked))

    return _KEPT.change(change)


def unmark(names: list[str]) -> str:
    """Note that these were not done after all; return and raise as ``progress.record_try``."""

    def change(kept: Any) -> Any:
        found = _checked(kept)
        marked = {name: day for name, day in found.done.items() if name not in names}
        return _entry(Planned(found.until, found.minutes, found.began, marked))

    return _KEPT.change(change)


def _entry(planned: Planned) -> dict[str, Any]:
    return {name: value for name, value in asdict(planned).items() if name != "message"}


def _checked(kept: Any) -> Planned:
    """Read the section; days are days."""
    try:
        found = made(Planned, kept or {})
        for day in filter(None, (found.until, found.began, *found.done.values())):
            date.fromisoformat(day)
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedError from error
    return found
