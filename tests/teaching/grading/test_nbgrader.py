"""nbgrader from end to end: release, autograde, feedback; it is no part of the course."""

from __future__ import annotations

import json

import pytest

from tests.teaching.grading.handed_in import ATTEMPTS, SCALE, cell_of, run_in, write

pytest.importorskip("nbgrader")
assignment = pytest.importorskip("classroom.assignments.assignment")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "03_loss_scaling"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    assignment.for_nbgrader(folder, "03")
    run_in(folder, f"nbgrader generate_assignment {NAME}")
    for learner, source in ATTEMPTS.items():
        released = json.loads((folder / "release" / NAME / f"{NAME}.ipynb").read_text("utf-8"))
        if source is not None:
            cell_of(released, SCALE, "stub")["source"] = source
        write(folder / "submitted" / learner / NAME / f"{NAME}.ipynb", released)
    run_in(folder, f"nbgrader autograde {NAME}")
    run_in(folder, f"nbgrader generate_feedback {NAME}")
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
        found = {name: book.find_submission(NAME, name) for name in ATTEMPTS}
        full = shelf.find(SCALE).difficulty
        assert [each.score for each in found.values()] == [0, 0, full, 0]
        assert not any(each.needs_manual_grade for each in found.values())


def test_the_feedback_says_why(course):
    page = (course / "feedback" / "wrong" / NAME / f"{NAME}.html").read_text("utf-8")
    assert "The largest safe scale: not passed" in page
