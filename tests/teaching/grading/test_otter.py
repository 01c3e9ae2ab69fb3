"""otter from end to end: generate, then run on each submission; it is no part of the course."""

from __future__ import annotations

import json

import pytest

from tests.teaching.grading.handed_in import ATTEMPTS, SCALE, hand_in, run_in

pytest.importorskip("otter")
assignment = pytest.importorskip("classroom.assignments.assignment")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def autograder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("otter")
    assignment.for_otter(folder, "03")
    run_in(folder, "otter generate -t tests -c otter_config.json --no-environment -o autograder.zip")
    return folder / "autograder.zip"


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_only_a_right_submission_gets_points(autograder, tmp_path, attempt):
    written = {SCALE: ATTEMPTS[attempt]} if ATTEMPTS[attempt] else {}
    handed_in = hand_in(tmp_path / "03_loss_scaling.ipynb", "03", **written)
    run_in(tmp_path, f"otter run -a {autograder} -o {tmp_path} {handed_in}")
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    tests = {each["name"]: each for each in results["tests"] if "score" in each}
    score = next(each for name, each in tests.items() if SCALE in name)
    assert score["score"] == (score["max_score"] if attempt == "right" else 0)
    assert sum(each["score"] for each in tests.values()) == score["score"]
