"""Keep the tests away from what belongs to the learner: progress, and results of the benchmark."""

from __future__ import annotations

import os
import tempfile

import pytest


def pytest_configure(config):
    """Give the kernels that run the notebooks a folder of their own, the same for all of this run."""
    if not hasattr(config, "workerinput"):  # a worker of xdist has inherited it
        folder = tempfile.TemporaryDirectory(prefix="amp-lessons-")
        config.add_cleanup(folder.cleanup)
        os.environ["AMP_LESSONS_HOME"] = folder.name


@pytest.fixture(autouse=True)
def progress_home(tmp_path, monkeypatch):
    """Give each test a progress folder of its own."""
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "progress"))
    return tmp_path / "progress"
