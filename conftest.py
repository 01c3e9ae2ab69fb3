"""Keep every test, the notebooks' kernels included, away from the learner's own progress."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest

pytest_plugins = ["tests.selection"]

_HOME = pytest.StashKey[tempfile.TemporaryDirectory]()


def pytest_configure(config: pytest.Config) -> None:
    """Give this process, and the kernels it starts, an empty home for progress."""
    config.stash[_HOME] = tempfile.TemporaryDirectory(prefix="amp-lessons-")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what `command &` in a script starts
    os.environ["AMP_LESSONS_HOME"] = config.stash[_HOME].name
    os.environ["TQDM_DISABLE"] = "1"  # what a bar says differs from run to run, and outputs are compared


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove it."""
    config.stash[_HOME].cleanup()
