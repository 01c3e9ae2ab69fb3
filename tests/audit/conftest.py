"""Fixtures of the audit's tests."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from amp_lessons.audit.recorder import later


@pytest.fixture
def where(request, monkeypatch):
    """Put a test where its parameter, one of ``WHERE``, says; new tensors lie there."""
    if request.param == "as if on a device":
        monkeypatch.setattr(later, "lies_here", lambda tensor: False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits each time
    with torch.device("cuda") if request.param == "cuda" else nullcontext():
        yield request.param
