"""What a lesson says at its head: its number, its title and its minutes. Nobody types them a second time."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

from amp_lessons.lessons.shipped import lessons, numbered, originals

_TITLE = re.compile(r"# (\d\d) · (.+)")
_MINUTES = re.compile(r"\*\*(\d+) minutes")


@dataclass(frozen=True)
class Head:
    """The head of a lesson: number (``"03"``), file name, title, and the minutes of a reader alone."""

    number: str
    file: str
    title: str
    minutes: int


def head_of(number: str) -> Head:
    """Return the head of the lesson with that number, ``"03"`` or ``"3"``.

    Raises ValueError if there is no such lesson, FileNotFoundError where the lessons did not come.
    """
    return _read(numbered(originals(), number))


def named(number: str) -> str:
    """Return number and title, ``"03 · Loss scaling"``; the number alone where the lessons did not come."""
    try:
        return f"{number} · {head_of(number).title}"
    except FileNotFoundError:
        return number


def head_after(head: Head) -> Head | None:
    """Return the head of the lesson that follows; None after the last."""
    later = [path for path in lessons(originals()) if path.name > head.file]
    return _read(later[0]) if later else None


def minutes_in(first_cell: str) -> int:
    """Return the minutes that a lesson's first cell states. Raises ValueError where it states none."""
    found = _MINUTES.search(first_cell)
    if not found:
        raise ValueError("a lesson states its minutes in its first cell, in bold: **110 minutes,**")
    return int(found[1])


@functools.cache
def _read(path: Path) -> Head:
    first_cell = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
    title = _TITLE.match(first_cell)
    if not title:
        raise ValueError(f"{path.name} begins with its number and title: # 03 · Loss scaling")
    return Head(title[1], path.name, title[2].strip(), minutes_in(first_cell))
