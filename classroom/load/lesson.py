"""What a simulated learner does with a lesson: its cells, and one exercise with its solution."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from amp_lessons import exercises, lessons
from amp_lessons.exercises.exercise import cell_id


@dataclass(frozen=True)
class Lesson:
    """A lesson to run: the sources of its ``cells``, in which nothing raises.

    ``solution`` and ``check`` are of its last exercise; empty where it has none.
    """

    number: str
    folder: Path
    cells: tuple[str, ...]
    solution: str = ""
    check: str = ""


def read(number: str) -> Lesson:
    """Read a lesson by its number. Raises ValueError if there is none."""
    path = next(iter(lessons.originals().glob(f"{number}_*.ipynb")), None)
    if path is None:
        raise ValueError(f"there is no lesson {number}; choose one of {', '.join(numbers())}")
    cells = [cell for cell in json.loads(path.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    sources = {cell.get("id", ""): "".join(cell["source"]) for cell in cells}
    found = [each for each in exercises.catalog() if cell_id(each.id, "check") in sources]
    order = list(sources)
    last = max(found, key=lambda each: order.index(cell_id(each.id, "check")), default=None)
    return Lesson(
        number,
        path.parent,
        tuple("".join(cell["source"]) for cell in cells),
        exercises.solution(last.id).source if last else "",
        sources[cell_id(last.id, "check")] if last else "",
    )


def numbers() -> list[str]:
    """List the numbers of all lessons."""
    return sorted(path.name[:2] for path in lessons.originals().glob("[0-9][0-9]_*.ipynb"))
