"""Tiny tensors: beside other test processes a pool of threads only waits."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_one_thread(one_thread):
    """Compute on one thread: tensors are tiny."""
