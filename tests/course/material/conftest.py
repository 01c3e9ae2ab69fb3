"""What all of these tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def on_one_thread(one_thread):
    """Tiny tensors: beside other test processes a pool of threads only waits."""
