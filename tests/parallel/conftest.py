"""Functions of these tests run on ranks."""

from __future__ import annotations

import cloudpickle
import pytest


@pytest.fixture(scope="module", autouse=True)
def taken_along(request):
    """Pickle by value what a file of tests defines: each rank would import it, and pytest, in seconds."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
