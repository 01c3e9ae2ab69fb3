"""Make an assignment of a lesson: the lesson, its exercises' cells marked, and what a grader needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from amp_lessons import exercises
from amp_lessons.course.exercises import Exercise
from amp_lessons.course.exercises.exercise import cell_id
from amp_lessons.course.lessons import fresh, originals

_CHECKOUT = Path(__file__).resolve().parents[2]
_NBGRADER_CONFIG = """\
import sys

sys.path.insert(0, {checkout!r})  # where classroom/assignments lies

from classroom.assignments.for_nbgrader import configure

c = get_config()
configure(c)
"""
_OTTER_TEST = """\
OK_FORMAT = True

test = {{
    "name": {id!r},
    "points": {points},
    "suites": [
        {{
            "cases": [{{"code": ">>> assert points[{id!r}] == 1.0, reports[{id!r}]\\n", "hidden": False}}],
            "scored": True,
            "setup": "",
            "teardown": "",
            "type": "doctest",
        }}
    ],
}}
"""


def for_nbgrader(course: Path, lesson: str) -> Path:
    """Write the source version of a lesson, and nbgrader's configuration where none is; return the notebook.

    No solution stands in it: none can be left in by mistake. Raises ValueError where there are no exercises.
    """
    written, name = _lesson(lesson)
    for exercise in exercises_of(lesson):
        marks = _marks(f"{exercise.id}-answer", solution=True, locked=False)
        _cell(written, exercise, "stub")["metadata"]["nbgrader"] = marks
        marks = _marks(exercise.id, grade=True, locked=True, points=points_of(exercise))
        _cell(written, exercise, "check")["metadata"]["nbgrader"] = marks
    path = course / "source" / name / f"{name}.ipynb"
    _write(path, json.dumps(written, indent=1))
    config = course / "nbgrader_config.py"
    if not config.exists():
        _write(config, _NBGRADER_CONFIG.format(checkout=str(_CHECKOUT)))
    return path


def for_otter(folder: Path, lesson: str) -> Path:
    """Write a lesson, and beside it a test for each exercise and otter's configuration; return the notebook.

    Raises ValueError for a lesson without exercises.
    """
    written, name = _lesson(lesson)
    found = exercises_of(lesson)
    for exercise in found:
        test = _OTTER_TEST.format(id=exercise.id, points=points_of(exercise))
        _write(folder / "tests" / f"{exercise.id}.py", test)
    plugin = {"classroom.assignments.for_otter.GradeBehindWalls": {"exercises": [each.id for each in found]}}
    _write(folder / "otter_config.json", json.dumps({"plugins": [plugin]}, indent=1))
    path = folder / f"{name}.ipynb"
    _write(path, json.dumps(written, indent=1))
    return path


def exercises_of(lesson: str) -> list[Exercise]:
    """Return the exercises of a lesson. Raises ValueError where it has none."""
    found = [each for each in exercises.catalog() if each.lesson == lesson]
    if not found:
        having = ", ".join(dict.fromkeys(each.lesson for each in exercises.catalog()))
        raise ValueError(f"lesson {lesson!r} has no exercises; these have: {having}")
    return found


def points_of(exercise: Exercise) -> int:
    """Return what a solved exercise is worth: as many points as it is difficult, from 1 to 5."""
    return exercise.difficulty


def _lesson(lesson: str) -> tuple[dict[str, Any], str]:
    """Return a lesson, as every learner gets it, and its name."""
    exercises_of(lesson)
    path = next(originals().glob(f"{lesson}_*.ipynb"))
    return fresh.without_outputs(json.loads(path.read_text("utf-8"))), path.stem


def _cell(written: dict[str, Any], exercise: Exercise, part: str) -> dict[str, Any]:
    return next(cell for cell in written["cells"] if cell["id"] == cell_id(exercise.id, part))


def _marks(grade_id: str, **marks: Any) -> dict[str, Any]:
    plain = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3}
    return {**plain, "grade_id": grade_id, **marks}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
