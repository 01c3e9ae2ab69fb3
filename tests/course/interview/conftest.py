"""What several tests of the interview room begin with."""

from __future__ import annotations

import pytest

from amp_lessons.course import progress
from tests.course.views.hands import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def of_a_newer_version(progress_home):
    """A progress file that is left alone: nothing can be kept."""
    progress_home.mkdir()
    progress.path().write_text('{"schema": 99, "exercises": {}}')
