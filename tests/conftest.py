"""Keep the tests away from what belongs to the learner: progress, and results of the benchmark."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def progress_home(tmp_path, monkeypatch):
    """Give each test a progress folder of its own."""
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "progress"))
    return tmp_path / "progress"
