"""What a comparison says of a parting, what its pictures show, and its page where nothing draws them."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from amp_lessons import audit
from amp_lessons.audit.comparing.comparison import Parting
from amp_lessons.audit.comparing.report import as_text
from amp_lessons.audit.page.comparing import comparison_page, modules_picture, steps_picture
from tests.audit.trainings import perceptron


def recorded(dtype: torch.dtype | None = None) -> audit.Recording:
    torch.manual_seed(0)
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with audit.recording(steps=3) as seen:
        for _ in range(3):
            with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(torch.linspace(-1, 1, 64).view(8, 8)), torch.arange(8) % 4)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return seen.recording


@pytest.mark.parametrize("draw", [modules_picture, steps_picture])
def test_all_that_is_drawn_lies_within_the_axes(draw):
    axes = draw(audit.compare(recorded(), recorded(torch.bfloat16))).figure.axes[0]
    drawn = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.lines])
    drawn = drawn[np.isfinite(drawn)]
    low, high = axes.get_ylim()
    assert len(drawn)
    assert low < drawn.min()
    assert drawn.max() < high


def test_without_matplotlib_the_page_says_what_draws(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = comparison_page(audit.compare(recorded(), recorded(torch.bfloat16)))
    assert "pip install matplotlib" in page
    assert "<img" not in page
    assert "<table" in page


def said_of(**parting) -> str:
    """Say that the runs part at a place that is like this."""
    half = Parting("1", "forward", 0, "output", 0.5, 0.0, None, 0.1, ("float32", "bfloat16"))
    comparison = audit.compare(recorded(), recorded(torch.bfloat16))
    first = replace(half, **parting)
    return " ".join(as_text(replace(comparison, first=first, parted=first)).split())


def test_what_came_in_is_said_where_something_did():
    assert "0.25 of it came in; fp32" in said_of(inherited=0.25)
    assert "came in" not in said_of(inherited=0.0)


@pytest.mark.parametrize(("other", "told"), [("float16", True), ("bfloat16", False)])
def test_underflow_is_thought_of_in_fp16_alone(other, told):
    assert ("a gradient scaler is there for that" in said_of(formats=("float32", other))) == told
