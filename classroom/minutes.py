"""How the minutes at a lesson's head divide over its sections.

The sum is the lesson's own, a reader's, and so are parts for which the head states a sum. An exercise takes
what its card says, a mock interview what it is set to. The rest is shared out by the rule by which readers
counted: 180 words a minute, 40 seconds for six lines of code; and a minute for each question and each view.
So a section's minutes are computed, not measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from amp_lessons.exercises import shelf
from amp_lessons.lessons.shipped import minutes_in

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
OPENING = "Opening"  # what stands above the first heading

_BEFORE = re.compile(r"the (\d+) before \*(.+?)\*")
_OPTIONAL = re.compile(r"(\d+) without the optional part, from \*(.+?)\* to the recap")
_HEADING = re.compile(r"#{2,3} (.+)")
_CARD = re.compile(r'views\.ExerciseCard\("(\w+)"\)')
_MOCK = re.compile(r"views\.MockInterview\(.*minutes=(\d+)")
_UNTIMED = ("-stub", "-card", "-check", "install", "lesson-end")  # counted with the exercise, or folded away


@dataclass
class Section:
    """What stands from one heading to the next: minutes that are given, and the weight of the rest."""

    heading: str
    given: int = 0
    weight: float = 0.0


def read(number: str) -> NotebookNode:
    """Read a lesson by its number, ``"03"``."""
    return nbformat.read(next(NOTEBOOKS.glob(f"{number}_*.ipynb")), as_version=4)


def stated(lesson: NotebookNode) -> int:
    """Return the minutes that a lesson states at its head."""
    return minutes_in(lesson.cells[0].source)


def minutes(lesson: NotebookNode) -> dict[str, int]:
    """Return the whole minutes of each section by its heading; their sum is what the head states."""
    parts = _sections(lesson)
    shared: dict[str, int] = {}
    for total, sections in _parted(lesson, parts):
        shared |= _share(total, sections)
    return {part.heading: shared[part.heading] for part in parts}


def _share(total: int, parts: list[Section]) -> dict[str, int]:
    """Share out ``total`` in whole minutes: sums from the beginning are rounded, so that they add up."""
    a_weight = (total - sum(part.given for part in parts)) / sum(part.weight for part in parts)
    shared, exact, so_far = {}, 0.0, 0
    for part in parts:
        exact += part.given + a_weight * part.weight
        shared[part.heading] = round(exact) - so_far
        so_far = round(exact)
    return shared


def _parted(lesson: NotebookNode, parts: list[Section]) -> Iterator[tuple[int, list[Section]]]:
    """Part the sections where the head gives a sum for some of them."""
    total, place = stated(lesson), [part.heading for part in parts].index
    head = lesson.cells[0].source
    if before := _BEFORE.search(head):
        end = place(before[2])
        yield int(before[1]), parts[:end]
        yield total - int(before[1]), parts[end:]
    elif without := _OPTIONAL.search(head):
        begin, end = place(without[2]), place("Recap")
        yield int(without[1]), parts[:begin] + parts[end:]
        yield total - int(without[1]), parts[begin:end]
    else:
        yield total, parts


def _sections(lesson: NotebookNode) -> list[Section]:
    parts = [Section(OPENING)]
    for cell in lesson.cells:
        if cell.cell_type == "markdown" and (heading := _HEADING.match(cell.source)):
            parts.append(Section(heading[1].strip()))
        parts[-1].given += sum(map(int, _MOCK.findall(cell.source)))
        parts[-1].given += sum(map(_of_exercise, _CARD.findall(cell.source)))
        parts[-1].weight += _weight(cell)
    return parts


def _of_exercise(id: str) -> int:
    return next(each.minutes for each in shelf.exercises() if each.id == id)


def _weight(cell: NotebookNode) -> float:
    """Return the minutes that a reader needs for a cell, by the rule."""
    if cell.cell_type == "markdown":
        return len(cell.source.split()) / 180
    if cell.id.endswith(_UNTIMED):
        return 0.0
    lines = sum(bool(line.strip()) for line in cell.source.splitlines())
    asked = sum(output.get("data", {}).get("text/markdown", "").count("<details>") for output in cell.outputs)
    return lines * 40 / 6 / 60 + max(asked, "views." in cell.source)
