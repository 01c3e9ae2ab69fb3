"""Begin an exercise: copy the template to a folder of its own, and add its three cells to the notebook.

make exercise ID=my_exercise LESSON=03 calls this. Nothing is overwritten.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from amp_lessons.course.exercises.exercise import Exercise, cell_id, read
from amp_lessons.course.exercises.shelf import exercises_in

ROOT = Path(__file__).parents[1]
EXERCISES = ROOT / "amp_lessons" / "course" / "exercises"
PLACEHOLDER = "exercise_id"


def main(argv: Sequence[str] | None = None) -> int:
    """Make the exercise that the command line names; say what to do next, or what is wrong."""
    parser = argparse.ArgumentParser(prog="make exercise", description=__doc__.splitlines()[0])
    parser.add_argument("id", help="what the learner writes, as a Python name: its folder is called so too")
    parser.add_argument("lesson", help="the number of the lesson: 03")
    chosen = parser.parse_args(argv)
    try:
        notebook = notebook_of(chosen.lesson)
        exercise = write_folder(chosen.id, chosen.lesson)
        add_cells(notebook, exercise)
    except ValueError as error:
        print(f"make exercise ID=my_exercise LESSON=03: {error}", file=sys.stderr)
        return 2
    print(
        f"{EXERCISES / exercise.id}: write card, stub, solution, check and attempts, then run\n"
        f"  .venv/bin/python -m pytest tests/course/exercises tests/audit -k '{exercise.id} or codes'\n"
        f"{notebook}: three cells, after the lesson's other exercises; move them, then\n"
        f"  make notebooks NOTEBOOKS={notebook.relative_to(ROOT)}\n"
        "  .venv/bin/python -m classroom.pages\n"
        "  .venv/bin/python -m pytest tests/test_notebooks.py, which holds the section's minutes"
    )
    return 0


def notebook_of(lesson: str, folder: Path = ROOT / "notebooks") -> Path:
    """Return the notebook of a lesson. Raises ValueError where there is none."""
    found = sorted(folder.glob(f"{lesson}_*.ipynb"))
    if len(found) != 1:
        raise ValueError(f"there is no lesson {lesson!r} in {folder}")
    return found[0]


def write_folder(exercise_id: str, lesson: str, folder: Path = EXERCISES) -> Exercise:
    """Copy the template for an exercise in the last place of its lesson. Raises ValueError for a bad id."""
    if not exercise_id.isidentifier() or exercise_id.startswith("_"):
        raise ValueError(f"{exercise_id!r} is no Python name: letters, digits and underscores")
    target = folder / exercise_id
    if target.exists():
        raise ValueError(f"{target} is there already")
    place = 1 + max((each.place for each in exercises_in(folder) if each.lesson == lesson), default=0)
    target.mkdir(parents=True)
    for source in sorted((EXERCISES / "_template").iterdir()):
        if source.is_file():
            text = source.read_text("utf-8").replace(PLACEHOLDER, exercise_id)
            text = text.replace('lesson: "00"\nplace: 1\n', f'lesson: "{lesson}"\nplace: {place}\n')
            (target / source.name).write_text(text, "utf-8")
    return read(target)


def add_cells(path: Path, exercise: Exercise) -> None:
    """Put card, stub and check into a notebook: after its last exercise, or at its end."""
    notebook = nbformat.read(path, 4)
    checks = [i for i, cell in enumerate(notebook.cells) if cell.source.startswith("views.check(")]
    at = checks[-1] + 1 if checks else len(notebook.cells)
    notebook.cells[at:at] = cells_of(exercise)
    nbformat.write(notebook, path)


def cells_of(exercise: Exercise) -> list[NotebookNode]:
    """Make an exercise's three cells; tests know them by their ids."""
    given = exercise.names[0] if len(exercise.names) == 1 else f"({', '.join(exercise.names)})"
    sources = {
        "card": f'views.ExerciseCard("{exercise.id}")',
        "stub": exercise.stub.rstrip("\n"),
        "check": f'views.check("{exercise.id}", {given})',
    }
    return [new_code_cell(source, id=cell_id(exercise.id, part)) for part, source in sources.items()]


if __name__ == "__main__":
    sys.exit(main())
