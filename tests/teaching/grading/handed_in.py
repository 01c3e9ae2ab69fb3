"""Notebooks as learners hand them in: a lesson of the course with other words in some of its cells."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.exercise import cell_id
from amp_lessons.course.lessons import originals


def notebook(lesson: str) -> dict[str, Any]:
    """Return a lesson as it comes."""
    return json.loads(next(originals().glob(f"{lesson}_*.ipynb")).read_text("utf-8"))


def hand_in(path: Path, lesson: str, **attempts: str) -> Path:
    """Write a lesson in which each of these exercises has this source in its cell."""
    written = notebook(lesson)
    for exercise_id, source in attempts.items():
        cell_of(written, exercise_id, "stub")["source"] = source
    return write(path, written)


def write(path: Path, written: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written), "utf-8")
    return path


def cell_of(written: dict[str, Any], exercise_id: str, part: str) -> dict[str, Any]:
    return next(cell for cell in written["cells"] if cell.get("id") == cell_id(exercise_id, part))


def solution(exercise_id: str) -> str:
    return shelf.find(exercise_id).solution_source


HOSTILE = """
from amp_lessons import exercises, views
class Passed:
    passed, points, status, attempted, findings = True, 1.0, "passed", True, ()
exercises.check = views.check = lambda *args, **options: Passed()
exercises.Report.passed = exercises.Report.points = property(lambda self: 1.0)
def largest_safe_scale(gradients):
    return exercises.check()
"""

SCALE = "largest_safe_scale"
ATTEMPTS = {  # what becomes of each, other graders say as ours does: the right one alone gets points
    "unsolved": None,
    "wrong": f"def {SCALE}(gradients):\n    return 512.0",
    "right": solution(SCALE),
    "hostile": HOSTILE,
}


def run_in(folder: Path, words: str) -> None:
    """Run another grader's module in ``folder``, as a teacher does."""
    root = str(Path(__file__).parents[3])
    programs = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ["PATH"]]
    )  # nbgrader calls alembic
    command, env = (
        [sys.executable, "-m", *shlex.split(words)],
        {**os.environ, "PYTHONPATH": root, "PATH": programs},
    )
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
