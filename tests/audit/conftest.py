"""Fixtures of the audit's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist

from amp_lessons.audit.recorder import later


@pytest.fixture
def where(request, monkeypatch):
    """Put a test where its parameter, one of ``WHERE``, says; new tensors lie there."""
    if request.param == "as if on a device":
        monkeypatch.setattr(later, "lies_here", lambda tensor: False)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # the same bits each time
    with torch.device("cuda") if request.param == "cuda" else nullcontext():
        yield request.param


@pytest.fixture(scope="module")
def one_rank() -> Iterator[None]:
    """Be the only rank of a group over gloo."""
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("PyTorch was built without gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
