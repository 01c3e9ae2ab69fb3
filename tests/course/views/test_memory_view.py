"""The memory of a step, against hooks for saved tensors; the stories say what is drawn, and how it moves."""

from functools import partial

import pytest
import torch
from torch import nn

from amp_lessons import measure
from amp_lessons._base.drawing.style import KIND_COLOURS
from amp_lessons._base.text.words import memory
from amp_lessons.course.views import MemoryView, activation_stack, step_memory
from amp_lessons.course.views.widgets.memory import LAYERS_IN_VIEW, memory_picture
from amp_lessons.measure import Footprint, Saved
from amp_lessons.measure.footprint import COMPUTED, MEASURED
from tests.course.views.conftest import faults
from tests.course.views.hands import written
from tests.course.views.samples import IMAGES, MEMORY, PERCEPTRON

pytestmark = pytest.mark.slow


def footprint(saved=(), peak=None, source=COMPUTED):
    return Footprint(400, 400, 800, tuple(saved), peak or {"parameters": 400}, "backward", (), source)


def bars(axes):
    """The widths of all bars, row by row from the top."""
    rows = {}
    for bar in axes.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2, 3), []).append(bar.get_width())
    return [rows[y] for y in sorted(rows)]


def test_it_says_what_the_saved_tensor_hooks_count():
    caption = MemoryView(MEMORY).caption
    wide = sum(measure.saved_activation_bytes(PERCEPTRON, IMAGES).values())
    half = sum(measure.saved_activation_bytes(PERCEPTRON, IMAGES, dtype=torch.float16).values())
    assert f"in fp32: {memory(wide)}." in caption
    assert f"Under fp16 autocast: {memory(half)}, {100 * half / wide:.0f} % of that" in caption


@pytest.mark.parametrize("depth", [1, 2])
def test_bars_add_up_to_what_is_saved_and_to_the_peak(depth):
    view = MemoryView(MEMORY, "block", precision="bf16", depth=depth)
    above, below = view.picture.figure.axes
    found = view.footprints.values()
    assert sum(map(sum, bars(above))) == sum(sum(each.saved_bytes.values()) for each in found)
    assert list(map(sum, bars(below))) == [each.peak_bytes for each in found]
    layers = {path or "the model's own forward()" for path in view.footprints["bf16"].saved_by_module(depth)}
    assert layers <= set(written(above))


def test_each_choice_is_predicted_once():
    calls = []

    def predict(**choice):
        calls.append(choice["precision_name"])
        return MEMORY["perceptron"](**choice)

    view = MemoryView({"counted": predict})
    view.precision = "bf16"
    view.precision = "fp16"
    assert calls == ["fp32", "fp16", "bf16"]


@pytest.mark.parametrize("first", ["right", "wrong"])
def test_a_network_that_fails_is_answered_in_words(first):
    wrong = partial(measure.predict_memory, nn.ReLU(), IMAGES)
    view = MemoryView({"right": MEMORY["perceptron"], "wrong": wrong}, first)
    view.network = "wrong"
    assert view.caption.startswith("there is nothing to train")
    assert view.caption in view.children[-1].value
    view.network = "right"
    assert view.caption.startswith("Computed (no GPU needed).")


def test_each_kind_of_memory_has_its_name_in_the_picture():
    peak = dict.fromkeys(KIND_COLOURS, 100)
    assert not list(faults(step_memory({"fp32": footprint(peak=peak), "fp16": footprint(peak=peak)}).picture))


def test_of_many_layers_the_last_stand_together():
    saved = [Saved(f"layer{i}", torch.float32, 10, False) for i in range(LAYERS_IN_VIEW + 5)]
    (axes,) = memory_picture({"fp32": footprint(saved)}, parts=("layers",)).figure.axes
    assert bars(axes)[-1] == [50]
    assert "… 5 more" in written(axes)


def test_nothing_saved_is_said_without_a_division_and_what_was_measured_is_marked():
    measured = dict.fromkeys(("fp32", "fp16"), footprint(source=MEASURED))
    assert "in fp32: 0 bytes." in activation_stack(measured).caption
    for still in (activation_stack, step_memory):
        assert still(measured)._repr_mimebundle_()["text/plain"].startswith("[measured] ")
    assert "[measured]" not in step_memory({"fp32": footprint()})._repr_mimebundle_()["text/plain"]


def test_what_the_figures_leave_out_is_said_once():
    warned = partial(measure.predict_memory, torch.nn.LSTM(4, 4), torch.rand(2, 3, 4))
    view = MemoryView({"lstm": warned, **MEMORY})
    stills = [show(view.footprints) for show in (activation_stack, step_memory)]
    for caption in (view.caption, *(still.caption for still in stills)):
        assert caption.count("Beware of the recurrent layer") == 1
    view.network = "block"
    assert "Beware" not in view.caption
