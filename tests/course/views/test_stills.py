"""Pictures without controls; what is said of them and drawn stands in ``golden`` (``test_stories``)."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import views
from tests.course.views.conftest import faults_for_a_phone
from tests.course.views.samples import RUNS


def test_each_of_five_runs_has_a_colour_of_its_own_and_steps_are_whole_numbers():
    (axes,) = views.curves(RUNS, "Five runs.").picture.figure.axes
    assert len({line.get_color() for line in axes.lines}) == 5
    (axes,) = views.curves({"fp32": [3.0, 2.0, 1.5, 1.0]}, "four epochs").picture.figure.axes
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_what_happened_at_a_step_stands_there():
    (axes,) = views.curves(RUNS, "Five runs.", marks={2: "odd"}).picture.figure.axes
    (mark,) = [line for line in axes.lines if line.get_marker() == "^"]
    assert list(mark.get_xdata()) == [2]
    assert [(words.get_text(), words.xy[0]) for words in axes.texts] == [("odd", 2)]


@pytest.mark.parametrize("log", [False, True])
def test_for_a_phone_curves_are_drawn_narrow_with_their_names_below(log):
    runs = {f"{name}, whose name is longer than one line of it": line for name, line in RUNS.items()}
    narrow = views.curves(runs, "Five runs.", log=log).picture.narrow
    assert list(faults_for_a_phone(narrow)) == []
    (axes,) = narrow.figure.axes
    legend = axes.get_legend().get_window_extent()
    assert 0 <= legend.y0 < legend.y1 < axes.get_window_extent().y0
    assert legend.x1 <= narrow.figure.bbox.width


def test_ink_is_black_and_paper_white():
    blank, inked = (
        views.image_rows({"row": each}, "").picture for each in (torch.zeros(16, 64), torch.ones(16, 64))
    )
    assert inked.pixels().mean() < blank.pixels().mean()


def test_dtypes_of_results_have_their_colours():
    half, single = torch.float16, torch.float32
    still = views.result_dtypes(
        {"CUDA": {"Linear": half, "softmax": single}, "CPU": {"Linear": half, "softmax": half}}
    )
    shades = [patch.get_facecolor() for patch in still.picture.figure.axes[0].patches]
    assert shades[0] == shades[1] == shades[3] != shades[2]
