"""The pictures of a comparison show all that they draw; without matplotlib its page says what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from amp_lessons import audit
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
