"""A model in the catalogue that trains in microseconds, and measuring it."""

from __future__ import annotations

import pytest

from amp_lessons.course.bench.cases import predicted_bytes
from amp_lessons.course.bench.workloads import WORKLOADS
from tests.course.bench.tiny import TinyWorkload


@pytest.fixture
def tiny(monkeypatch):
    """Put it into the catalogue; called again, one with other options."""

    def install(**options):
        monkeypatch.setitem(WORKLOADS, "Tiny", TinyWorkload(**options))
        predicted_bytes.cache_clear()

    install()
    return install
