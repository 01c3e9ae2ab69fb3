"""Which route through the course the learner chose: a section of the progress file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amp_lessons.course.keeping.progress import DamagedError, Section

_KEPT = Section("route", "which way through the course you chose")


@dataclass(frozen=True)
class Chosen:
    """The id of the route that was chosen, ``"evening"``; empty before the first choice.

    ``message`` names a damaged file, if there was one.
    """

    route: str = ""
    message: str = ""


def read() -> Chosen:
    """Return the route that was chosen last. Raises ProgressError as ``progress.read`` does."""
    return Chosen(*_KEPT.read(_checked))


def record(route: str) -> str:
    """Note the choice of a route by its id; return as ``progress.record_try``."""
    return _KEPT.change(lambda _: {"id": route})


def _checked(kept: Any) -> str:
    """Read the section: the id, empty where there is none."""
    found = {} if kept is None else kept
    if not isinstance(found, dict) or not isinstance(found.get("id", ""), str):
        raise DamagedError
    return found.get("id", "")
