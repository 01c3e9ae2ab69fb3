"""What a watch allocates beside the training: at most one layer's gradients, by PyTorch's own profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from amp_lessons import audit
from amp_lessons.audit.recorder.spies import Recorder

# One thread allocates: what lies between two moments is of whoever worked between them.
pytestmark = pytest.mark.usefixtures("one_thread")

_MIB = 2**20
_WIDTH = 1024
_LAYER = (_WIDTH * 2 * _WIDTH + 2 * _WIDTH) * 4  # bytes of the largest layer's gradients
_OURS = "what the audit does"


@contextmanager
def naming_what_is_ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mark in a profile all that an audit does: it goes through ``safely``."""
    observe, inside = Recorder.safely, [False]

    def marked(self: Recorder, observed: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if inside[0]:
            return observe(self, observed, *args, **kwargs)
        inside[0] = True
        with record_function(_OURS):
            result = observe(self, observed, *args, **kwargs)
        inside[0] = False
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Recorder, "safely", marked)
        yield


def train(fused: bool, steps: int) -> None:
    model = nn.Sequential(nn.Linear(_WIDTH, 2 * _WIDTH), nn.ReLU(), nn.Linear(2 * _WIDTH, _WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(torch.randn(2, _WIDTH)).float().square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def allocated(monkeypatch: pytest.MonkeyPatch, fused: bool, steps: int) -> tuple[int, int]:
    """Return the most bytes that the audit held at once beside the training, and what is left of them."""
    with (
        naming_what_is_ours(monkeypatch),
        audit.watch(every=1) as seen,
        profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled,
    ):
        train(fused, steps)
    assert len(seen.steps) == steps
    assert not seen.report.not_seen
    events = profiled.profiler.kineto_results.events()
    sizes = sorted((each.start_ns(), each.nbytes()) for each in events if each.name() == "[memory]")
    peak, kept = 0, 0
    for each in events:
        if each.name() == _OURS:
            first, last = each.start_ns(), each.start_ns() + each.duration_ns()
            held = list(accumulate(size for moment, size in sizes if first <= moment <= last))
            peak, kept = max([peak, *(kept + now for now in held)]), kept + (held[-1] if held else 0)
    return peak, kept


def test_looking_closely_copies_nothing_of_a_model(monkeypatch):
    peak, kept = allocated(monkeypatch, fused=False, steps=1)
    assert 0 < kept <= peak < _MIB


def test_gradients_that_are_still_scaled_are_copied_one_layer_at_a_time(monkeypatch):
    peak, kept = allocated(monkeypatch, fused=True, steps=1)
    assert 0.9 * _LAYER < peak <= _LAYER + _MIB  # and not the two layers' that there are
    assert kept < _MIB


@pytest.mark.thorough
def test_what_is_kept_hardly_grows_with_the_steps(monkeypatch):
    after = [allocated(monkeypatch, fused=False, steps=steps)[1] for steps in (2, 4)]
    assert after[1] - after[0] < _MIB / 16
