"""The code that solved an exercise, version by version: a section of the progress file.

Whoever repeats an exercise empties its cell. What stood there is kept here, and here it is seen whether what
is handed in on that day was written on that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from amp_lessons._base.typed_json import made
from amp_lessons.course.keeping.practice import utc_now
from amp_lessons.course.keeping.progress import DamagedError, Section

SECTION = "written"
_KEPT = Section(SECTION, "the code that you wrote")
_MOST_VERSIONS = 5
_MOST_CHARACTERS = 50_000  # of one version: the file is written anew at every check


@dataclass(frozen=True)
class Version:
    """Code that passed its check, and when that was (UTC, ISO 8601)."""

    at: str
    source: str


@dataclass(frozen=True)
class Written:
    """The code that solved an exercise, the newest last; ``emptied_at`` is when its empty cell was checked.

    ``message`` names a damaged file, if there was one.
    """

    versions: tuple[Version, ...] = ()
    emptied_at: str = ""
    message: str = ""

    @property
    def newest(self) -> Version | None:
        """The newest version, if any was kept."""
        return self.versions[-1] if self.versions else None

    def __str__(self) -> str:
        said = [f"# passed its check on {each.at[:10]}\n{each.source}" for each in self.versions]
        return "\n\n".join(said) or "no code is kept of this exercise"

    __repr__ = __str__


def of(exercise_id: str) -> Written:
    """Return what was written for an exercise. Raises ProgressError as ``progress.read`` does."""
    found, message = _KEPT.read(_all)
    versions, emptied_at = found.get(exercise_id, ((), ""))
    return Written(versions, emptied_at, message)


def record_version(exercise_id: str, source: str) -> str:
    """Keep code that has passed its check; return and raise as ``progress.record_try``.

    The last few versions are kept, and what is the newest already is not kept twice.
    """
    if len(source) > _MOST_CHARACTERS:
        return ""
    version = Version(utc_now().isoformat(timespec="seconds"), source)

    def add(versions: tuple[Version, ...], emptied_at: str) -> tuple[tuple[Version, ...], str]:
        if versions and versions[-1].source == source:
            return versions, emptied_at
        return (*versions, version)[-_MOST_VERSIONS:], emptied_at

    return _change(exercise_id, add)


def record_empty(exercise_id: str) -> str:
    """Note that the empty cell was checked now: what follows is written anew. It is as ``record_version``."""
    now = utc_now().isoformat(timespec="seconds")
    return _change(exercise_id, lambda versions, _: (versions, now))


def _change(exercise_id: str, change: Any) -> str:
    def changed(kept: Any) -> Any:
        found = _all(kept)
        versions, emptied_at = change(*found.get(exercise_id, ((), "")))
        entry = {"versions": [asdict(each) for each in versions], "emptied_at": emptied_at}
        return {**(kept or {}), exercise_id: entry}

    return _KEPT.change(changed)


def _all(kept: Any) -> dict[str, tuple[tuple[Version, ...], str]]:
    """Read the section, every entry checked."""
    try:
        return {exercise_id: _entry(entry) for exercise_id, entry in (kept or {}).items()}
    except (TypeError, KeyError, AttributeError) as error:
        raise DamagedError from error


def _entry(entry: Mapping[str, Any]) -> tuple[tuple[Version, ...], str]:
    if not isinstance(entry["emptied_at"], str):
        raise TypeError(f"emptied_at is {entry['emptied_at']!r:.60}")
    return tuple(made(Version, each) for each in entry["versions"]), entry["emptied_at"]
