"""The ledger of networks, against what was recorded; its story says how it is stepped through."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from torch import nn
from torch.nn import functional as F

from amp_lessons import autocast
from amp_lessons.autocast import Policy, Row
from amp_lessons.course.views import LedgerView
from amp_lessons.course.views.widgets.ledger import ROWS_IN_VIEW, describe, ledger_picture
from tests.course.views.samples import IMAGES, NETWORKS


def test_the_backward_pass_follows_the_forward_pass_and_each_choice_is_recorded_once():
    calls = []

    def record(**choice):
        calls.append(choice)
        return NETWORKS["perceptron"](**choice)

    view = LedgerView({"counted": record})
    forward = len(view.rows)
    view.device_type = "cpu"
    view.device_type = "cuda"
    view.backward = True
    assert len(calls) == 2
    assert {row.phase for row in view.rows[forward:]} == {"backward"}
    assert view.row == len(view.rows) > forward
    assert ", backward of net.0: " in view.caption
    assert LedgerView(NETWORKS, backward=True).caption == view.caption


def test_a_model_that_fails_is_answered_in_words_with_what_ran_until_then():
    banned = nn.Sequential(nn.Linear(64, 4), nn.Sigmoid())
    target = torch.rand(4, 4)
    record = partial(autocast.record, banned, IMAGES, backward=lambda p: F.binary_cross_entropy(p, target))
    view = LedgerView({"banned": record, "fine": NETWORKS["perceptron"]})
    assert "unsafe to autocast" in view.caption
    assert [row.op for row in view.rows] == ["aten::linear", "aten::sigmoid"]
    view.device_type = "cpu"
    assert view.caption.split(",")[0] == f"{len(view.rows)} of {len(view.rows)}"


def test_a_first_network_that_fails_at_once_is_answered_in_words_too():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("nothing ran")

    late = LedgerView({"broken": partial(autocast.record, Broken(), IMAGES), **NETWORKS})
    assert "nothing ran" in late.caption
    assert late.rows == ()
    late.network = "perceptron"
    assert late.caption == LedgerView(NETWORKS).caption


@pytest.mark.parametrize("current", [0, 5, 20, -1])
def test_the_current_row_is_in_view_on_a_band_of_its_own(current):
    rows = NETWORKS["block"](device_type="cuda", dtype=torch.float16).rows
    current = current % len(rows)
    axes = ledger_picture(rows, current).figure.axes[0]
    texts = {t.get_text(): t.get_position()[1] for t in axes.texts}
    (band,) = axes.patches
    assert band.get_y() < texts[str(current + 1)] < band.get_y() + band.get_height() <= band.get_y() + 1
    assert len(texts.keys() & set(map(str, range(1, len(rows) + 1)))) == ROWS_IN_VIEW


def test_a_row_without_tensors_can_be_said():
    row = Row("", "aten::empty", (), None, (), Policy.FP32)
    assert "empty is called with no tensors; the result is no tensor" in describe((row,), 1)


def test_a_long_name_ends_before_the_next_column():
    rows = [replace(row, module=f"model.layers.1.output.{row.module}") for row in LedgerView(NETWORKS).rows]
    figure = ledger_picture(rows, 0).figure
    FigureCanvasAgg(figure).draw()
    words = {text.get_text(): text.get_window_extent() for text in figure.axes[0].texts}
    ends = [box.x1 for word, box in words.items() if word.startswith("…")]
    assert max(ends) < words["operation"].x0
