"""Functions of these tests run on ranks."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def _functions_by_value(taken_along):
    pass
