"""Where the lessons lie that the course comes with, in an installed package or in the checkout beside it.

And how a lesson is made: a head that states minutes, a core in one piece, deeper sections below it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FIRST = "00_start_here.ipynb"
INSTALLED = Path(__file__).parent / "notebooks"  # a wheel has it; setup.py fills it
CHECKED_OUT = Path(__file__).parents[3] / "notebooks"


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


Cell = Mapping[str, Any]  # as JSON holds it, or nbformat's

DEEPER = "## Deeper: "  # how the heading of a section begins that is no part of the core

_TITLE = re.compile(r"# (\d\d) · (.+)")
_MINUTES = re.compile(r"\*\*(\d+) minutes")
_MORE = re.compile(r"\*\*(\d+) more\*\*")
_HEADING = re.compile(r"(#{2,3}) (.+)")


@dataclass(frozen=True)
class Head:
    """The head of a lesson: number (``"03"``), file name, title, and the minutes of a reader alone.

    ``minutes`` are those of the core, ``deeper`` those of all that stands below it; 0 where nothing does.
    """

    number: str
    file: str
    title: str
    minutes: int
    deeper: int = 0

    @property
    def short_title(self) -> str:
        """The title as far as its colon: "Autocast"."""
        return self.title.partition(":")[0]


def head_of(number: str) -> Head:
    """Return the head of the lesson with that number, ``"03"`` or ``"3"``.

    Raises ValueError if there is no such lesson, FileNotFoundError where the lessons did not come.
    """
    return _head(numbered(originals(), number))


def heads() -> list[Head]:
    """Return the heads of all lessons, in their order. Raises FileNotFoundError as ``originals`` does."""
    return [_head(path) for path in lessons(originals())]


def head_after(head: Head) -> Head | None:
    """Return the head of the lesson that follows; None after the last."""
    return next((later for later in heads() if later.number > head.number), None)


def minutes_in(first_cell: str) -> int:
    """Return the minutes that a lesson's first cell states for the core. Raises ValueError without any."""
    found = _MINUTES.search(first_cell)
    if not found:
        raise ValueError("a lesson states its minutes in its first cell: **55 minutes** for the core")
    return int(found[1])


@functools.cache
def cells_of(lesson: Path) -> tuple[Cell, ...]:
    """Return the cells of a notebook."""
    return tuple(json.loads(lesson.read_text("utf-8"))["cells"])


def cells_in(number: str) -> tuple[Cell, ...]:
    """Return the cells of a lesson by its number. Raises as ``head_of`` does."""
    return cells_of(numbered(originals(), number))


def parted(cells: Iterable[Cell]) -> tuple[list[Cell], list[list[Cell]]]:
    """Part a lesson's cells into its core and its deeper sections, each of which begins with its heading."""
    core: list[Cell] = []
    deeper: list[list[Cell]] = []
    for cell in cells:
        if begins_deeper(cell):
            deeper.append([])
        (deeper[-1] if deeper else core).append(cell)
    return core, deeper


def parts_of(number: str) -> tuple[list[Cell], list[list[Cell]]]:
    """Return core and deeper sections of a lesson by its number. Raises as ``head_of`` does."""
    return parted(cells_in(number))


def section(number: str, id: str) -> list[Cell]:
    """Return a section of a lesson by the id of its heading's cell, with what stands below ``###``.

    The first cell heads what stands above the first heading. Raises ValueError where there is none.
    """
    cells = cells_in(number)
    levels = [len(heading[0]) if (heading := heading_of(cell)) else 0 for cell in cells]
    levels[0] = 2
    begin = next((at for at, cell in enumerate(cells) if cell["id"] == id and levels[at]), None)
    if begin is None:
        raise ValueError(f"lesson {number} has no heading whose cell is called {id!r}")
    ends = (at for at in range(begin + 1, len(cells)) if 0 < levels[at] <= levels[begin])
    return list(cells[begin : next(ends, len(cells))])


def begins_deeper(cell: Cell) -> bool:
    """Return whether a cell is the heading of a deeper section."""
    return cell["cell_type"] == "markdown" and source(cell).startswith(DEEPER)


def code_of(cells: Iterable[Cell]) -> str:
    """Return the code in these cells, cell after cell."""
    return "\n".join(source(cell) for cell in cells if cell["cell_type"] == "code")


def heading_of(cell: Cell) -> tuple[str, str] | None:
    """Return the signs and the words of the heading that a cell begins with, ``("##", "Recap")``."""
    found = _HEADING.match(source(cell)) if cell["cell_type"] == "markdown" else None
    return (found[1], found[2].strip()) if found else None


def source(cell: Cell) -> str:
    """Return the text of a cell."""
    return joined(cell["source"])


def joined(text: str | list[str]) -> str:
    """Return text that JSON may hold as a list of lines."""
    return text if isinstance(text, str) else "".join(text)


@functools.cache
def _head(path: Path) -> Head:
    first_cell = source(cells_of(path)[0])
    title, more = _TITLE.match(first_cell), _MORE.search(first_cell)
    if not title:
        raise ValueError(f"{path.name} begins with its number and title: # 03 · Loss scaling")
    return Head(title[1], path.name, title[2].strip(), minutes_in(first_cell), int(more[1]) if more else 0)


def named(number: str) -> str:
    """Return number and title, ``"03 · Loss scaling"``; the number alone where the lessons did not come."""
    try:
        return f"{number} · {head_of(number).title}"
    except FileNotFoundError:
        return number
