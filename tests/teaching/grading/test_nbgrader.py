"""nbgrader from end to end: release, autograde, feedback; it is no part of the course."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.teaching.grading.handed_in import HOSTILE, cell_of, solution, write

pytest.importorskip("nbgrader")
assignment = pytest.importorskip("classroom.assignments.assignment")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCALE, NAME = "largest_safe_scale", "03_loss_scaling"
ATTEMPTS = {
    "unsolved": None,
    "wrong": f"def {SCALE}(gradients):\n    return 512.0",
    "right": solution(SCALE),
    "hostile": HOSTILE,
}


def nbgrader(course: Path, *words: str) -> str:
    """Run nbgrader in its course, as a teacher does."""
    root = str(Path(__file__).parents[3])
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # it calls alembic
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *words],
        cwd=course,
        env={**os.environ, "PYTHONPATH": root, "PATH": programs},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    assignment.for_nbgrader(folder, "03")
    nbgrader(folder, "generate_assignment", NAME)
    for learner, source in ATTEMPTS.items():
        released = json.loads((folder / "release" / NAME / f"{NAME}.ipynb").read_text("utf-8"))
        if source is not None:
            cell_of(released, SCALE, "stub")["source"] = source
        write(folder / "submitted" / learner / NAME / f"{NAME}.ipynb", released)
    nbgrader(folder, "autograde", NAME)
    nbgrader(folder, "generate_feedback", NAME)
    return folder


def test_the_release_is_the_lesson_with_its_stubs(course):
    released = json.loads((course / "release" / NAME / f"{NAME}.ipynb").read_text("utf-8"))
    stub = "".join(cell_of(released, SCALE, "stub")["source"])
    assert stub.startswith(f"def {SCALE}(gradients):")
    assert "raise NotImplementedError" in stub


def test_unsolved_wrong_right_and_hostile_get_none_none_full_none(course):
    from nbgrader.api import Gradebook

    from amp_lessons.course.exercises import shelf

    with Gradebook(f"sqlite:///{course}/gradebook.db") as book:
        scores = {name: book.find_submission(NAME, name) for name in ATTEMPTS}
        full = shelf.find(SCALE).difficulty
        assert {name: each.score for name, each in scores.items()} == {
            "unsolved": 0,
            "wrong": 0,
            "right": full,
            "hostile": 0,
        }
        assert not any(each.needs_manual_grade for each in scores.values())


def test_the_feedback_says_why(course):
    page = (course / "feedback" / "wrong" / NAME / f"{NAME}.html").read_text("utf-8")
    assert "The largest safe scale: not passed" in page
