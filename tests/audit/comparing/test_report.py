"""What a comparison says of a parting, what its pictures show, and its page where nothing draws them."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from amp_lessons import audit
from amp_lessons.audit.comparing.comparison import Comparison, OfModule, OfStep, Parting
from amp_lessons.audit.comparing.pairing import Apart
from amp_lessons.audit.comparing.recording import How, Recording
from amp_lessons.audit.comparing.whole_runs import Movement
from amp_lessons.audit.page import comparison_page
from amp_lessons.audit.page.drawings import modules_picture, steps_picture
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


def by_hand() -> Comparison:
    """Make a comparison with one of everything, whose numbers are known."""
    how = How("train.py", "2.13.0", "0.3.0", "3.11.7", "a CPU", "2026-11-22T17:20:20+00:00", precision="bf16")
    a, b = Recording(how, steps=(0, 1)), Recording(replace(how, arguments=("--lr", "1")), steps=(0, 1))
    formats = ("float32", "bfloat16")
    first = Parting("net.1", "forward", 0, "output", 0.5, 0.25, 1e-3, 0.1, formats)
    weights = Parting("net.1", "weights", 1, "net.1.weight", math.inf, 0.0, None, 0.1, formats)
    rows = {
        f"net.{i}": OfModule(f"net.{i}", "Linear", formats, 0.5 / (i + 1), None, 0.1, 0.2, 1e-9, i)
        for i in range(14)
    }
    steps = (
        OfStep(0, Apart(0.5, 1e-6), None, Apart(0.0, None)),
        OfStep(1, None, Apart(math.nan, None), None),
    )
    moved = Movement(0, 1, 0.5, 0.1, (), tuple(f"net.{i}.weight" for i in range(6)))
    said = {"notes": ("a note",), "before": ("The seeds are 1 and 2.",), "moved": moved}
    return Comparison(a, b, None, first, weights, (first,), rows, steps, (weights,), **said)


def test_underflow_is_thought_of_in_fp16_alone_and_what_came_in_is_said_where_something_did():
    """In bf16, with 0.25 that came in, it is the golden file's."""
    whole = by_hand()
    first = replace(whole.first, formats=("float32", "float16"), inherited=0.0)
    said = " ".join(str(replace(whole, first=first, parted=first)).split())
    assert "They differ first" not in said
    assert "a gradient scaler is there for that" in said
    assert "came in" not in said


@pytest.mark.parametrize("name", ["comparison.txt", "comparison.json", "comparison.html"])
def test_a_comparison_in_each_form(name, golden, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    if name.endswith("html"):
        golden(name, comparison_page(by_hand()).partition("<main>")[2])
    else:
        golden(name, str(by_hand()) if name.endswith("txt") else by_hand().as_json())
