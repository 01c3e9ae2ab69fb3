"""Pictures without controls: what is drawn; what is said of it stands in ``golden`` (``test_stories``)."""

from __future__ import annotations

import pytest
import torch

from amp_lessons import views
from amp_lessons.course.material.decoder import Changes
from tests.course.views.conftest import faults_for_a_phone
from tests.course.views.samples import RUNS


def test_each_of_five_runs_has_a_curve_of_its_own():
    (axes,) = views.curves(RUNS, "Five runs.").picture.figure.axes
    assert [list(line.get_ydata()) for line in axes.lines] == list(RUNS.values())
    assert len({line.get_color() for line in axes.lines}) == 5


def test_what_happened_at_a_step_stands_there():
    (axes,) = views.curves(RUNS, "Five runs.", marks={2: "odd"}).picture.figure.axes
    (mark,) = [line for line in axes.lines if line.get_marker() == "^"]
    assert list(mark.get_xdata()) == [2]
    assert [(words.get_text(), words.xy[0]) for words in axes.texts] == [("odd", 2)]


def test_steps_are_numbered_in_whole_numbers():
    (axes,) = views.curves({"fp32": [3.0, 2.0, 1.5, 1.0]}, "four epochs").picture.figure.axes
    assert all(tick == round(tick) for tick in axes.get_xticks())


@pytest.mark.parametrize("log", [False, True])
def test_for_a_phone_curves_are_drawn_narrow_with_their_names_below(log):
    runs = {f"{name}, whose name is longer than one line of it": line for name, line in RUNS.items()}
    narrow = views.curves(runs, "Five runs.", log=log).picture.narrow
    assert list(faults_for_a_phone(narrow)) == []
    (axes,) = narrow.figure.axes
    legend = axes.get_legend().get_window_extent()
    assert legend.y1 < axes.get_window_extent().y0
    assert legend.y0 >= 0
    assert legend.x1 <= narrow.figure.bbox.width


def test_ink_is_black_and_paper_white():
    blank = views.image_rows({"paper": torch.zeros(16, 64)}, "nothing").picture.pixels()
    inked = views.image_rows({"paper": torch.ones(16, 64)}, "all").picture.pixels()
    assert inked.mean() < blank.mean()


def test_product_errors_are_drawn():
    errors = {("bf16", "fp32"): [0.0023, 0.0022], ("bf16", "bf16"): [0.005, 0.07]}
    lines = views.product_errors([16, 4096], errors).picture.figure.axes[0].lines
    assert [list(line.get_ydata()) for line in lines] == list(errors.values())


def test_dtypes_of_results_have_their_colours():
    half, single = torch.float16, torch.float32
    still = views.result_dtypes(
        {"CUDA": {"Linear": half, "softmax": single}, "CPU": {"Linear": half, "softmax": half}}
    )
    shades = [patch.get_facecolor() for patch in still.picture.figure.axes[0].patches]
    assert shades[0] == shades[1] == shades[3] != shades[2]


def test_changes_by_name_are_drawn_each_on_its_line():
    found = {"loss": (0.003, 0.04), "all but the router": (0.002, 0.5)}
    changes = {name: of_three(low, high) for name, (low, high) in found.items()}
    still = views.changes_by_name(changes, dict(reversed(changes.items())))
    typical, largest, rest = (list(line.get_xdata()) for line in still.picture.figure.axes[0].lines)
    assert rest == typical == pytest.approx([0.003, 0.002])
    assert largest == pytest.approx([0.04, 0.5])


def of_three(low, high):
    return Changes(torch.tensor([0.001, low, high]), 0)
