"""Where the lessons lie that the course comes with: in an installed package, or in the checkout beside it."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path

FIRST = "00_start_here.ipynb"
INSTALLED = Path(__file__).parent / "notebooks"  # a wheel has it; setup.py fills it
CHECKED_OUT = Path(__file__).parents[2] / "notebooks"


def originals() -> Path:
    """Return the folder of the lessons as they came. Raises FileNotFoundError where they did not come."""
    for folder in (INSTALLED, CHECKED_OUT):
        if (folder / FIRST).is_file():
            return folder
    raise FileNotFoundError(
        f"the lessons are neither in {INSTALLED} nor in {CHECKED_OUT}; install the course again"
    )


def checkout_above(start: Path) -> Path | None:
    """Return the checkout of the course that ``start`` lies in, if it lies in one."""
    return next(
        (folder for folder in (start, *start.parents) if (folder / "notebooks" / FIRST).is_file()), None
    )


def lessons(folder: Path) -> list[Path]:
    """List the lessons in a folder of originals, in their order."""
    return sorted(folder.glob("[0-9][0-9]_*.ipynb"))


def numbered(folder: Path, number: str) -> Path:
    """Return the lesson of a folder by its number, ``"03"`` or ``"3"``; ValueError names those there are."""
    found = {path.name.split("_")[0]: path for path in lessons(folder)}
    if number.strip().zfill(2) not in found:
        raise ValueError(f"there is no lesson {number!r}; choose one of {', '.join(found)}")
    return found[number.strip().zfill(2)]


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


def named(number: str) -> str:
    """Return number and title, ``"03 · Loss scaling"``; the number alone where the lessons did not come."""
    try:
        return f"{number} · {head_of(number).title}"
    except FileNotFoundError:
        return number
