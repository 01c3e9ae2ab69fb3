"""Where an exercise stands in its notebook: three cells, for the card, the stub and the check."""

from __future__ import annotations

import ast
import linecache
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from amp_lessons import exercises
from amp_lessons.course.exercises import Exercise
from amp_lessons.course.exercises.exercise import cell_id

ROOT = Path(__file__).parents[3]
NOTEBOOKS = {path.stem[:2]: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}


def code_cells(path: Path) -> list[NotebookNode]:
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def named(cells: list[NotebookNode], exercise_id: str, part: str) -> NotebookNode:
    """Return the cell that holds a part of an exercise, by its id."""
    wanted = cell_id(exercise_id, part)
    (cell,) = (cell for cell in cells if cell.id == wanted)
    return cell


def of_lesson(lesson: str) -> list[Exercise]:
    return [exercise for exercise in exercises.catalog() if exercise.lesson == lesson]


def notebook_cell(source: str) -> dict[str, Any]:
    """Run a cell as a notebook does: its text is known to Python, and is no file."""
    name = f"<ipython-input-{hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return namespace


def imports_of(cells: list[NotebookNode]) -> NotebookNode:
    """Return a cell with all imports: what a stub, a solution or a check needs of the other cells."""
    statements = (statement for cell in cells for statement in ast.parse(cell.source).body)
    imports = (each for each in statements if isinstance(each, (ast.Import, ast.ImportFrom)))
    return new_code_cell("\n".join(map(ast.unparse, imports)))


def exercises_alone(lesson: str) -> NotebookNode:
    """Return the notebook of somebody who only does the exercises of a lesson: it runs in a second."""
    notebook = nbformat.read(NOTEBOOKS[lesson], 4)
    cells = code_cells(NOTEBOOKS[lesson])
    spots = [named(cells, each.id, part) for each in of_lesson(lesson) for part in ("card", "stub", "check")]
    notebook.cells = [imports_of(cells), *spots]
    return notebook
