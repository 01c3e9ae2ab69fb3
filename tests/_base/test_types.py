"""What mypy says of the package: without its cache a minute on one core, so it is not among the last."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mypy_has_nothing_to_say():
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-m", "mypy"], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
