"""Keep the tests away from what belongs to the learner, and from each other: a test's chance is its own."""

from __future__ import annotations

import random
import sys

import pytest


@pytest.fixture(autouse=True)
def progress_home(tmp_path, monkeypatch):
    """Give each test a progress folder of its own."""
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "progress"))
    return tmp_path / "progress"


@pytest.fixture(autouse=True)
def seeded():
    """Begin each test with the same random numbers: which it draws must not depend on the tests before it."""
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
