"""otter from end to end: generate, then run on each submission; it is no part of the course."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.teaching.grading.handed_in import HOSTILE, hand_in, solution

pytest.importorskip("otter")
assignment = pytest.importorskip("classroom.assignments.assignment")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCALE = "largest_safe_scale"


def otter(folder: Path, *words: str) -> None:
    """Run otter in ``folder``, as a teacher does."""
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [sys.executable, "-m", "otter", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def autograder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("otter")
    assignment.for_otter(folder, "03")
    otter(
        folder,
        "generate",
        "-t",
        "tests",
        "-c",
        "otter_config.json",
        "--no-environment",
        "-o",
        "autograder.zip",
    )
    return folder / "autograder.zip"


@pytest.mark.parametrize(
    ("source", "solved"),
    [
        (None, False),
        (f"def {SCALE}(gradients):\n    return 512.0", False),
        (solution(SCALE), True),
        (HOSTILE, False),
    ],
    ids=["unsolved", "wrong", "right", "hostile"],
)
def test_only_a_right_submission_gets_points(autograder, tmp_path, source, solved):
    handed_in = hand_in(tmp_path / "03_loss_scaling.ipynb", "03", **({SCALE: source} if source else {}))
    otter(tmp_path, "run", "-a", str(autograder), "-o", str(tmp_path), str(handed_in))
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    tests = {each["name"]: each for each in results["tests"] if "score" in each}
    score = next(each for name, each in tests.items() if SCALE in name)
    assert score["score"] == (score["max_score"] if solved else 0)
    assert sum(each["score"] for each in tests.values()) == score["score"]
