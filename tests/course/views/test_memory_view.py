from functools import partial

import pytest
import torch
from torch import nn

from amp_lessons import measure
from amp_lessons._base.drawing.style import KIND_COLOURS
from amp_lessons._base.text.words import memory
from amp_lessons.course.material import models
from amp_lessons.course.views import MemoryView, activation_stack, step_memory
from amp_lessons.course.views.widgets.memory import LAYERS_IN_VIEW, memory_picture
from amp_lessons.measure import Footprint, Saved
from amp_lessons.measure.footprint import COMPUTED, MEASURED
from tests.course.views.conftest import faults
from tests.course.views.hands import written

pytestmark = pytest.mark.slow

IMAGES, TOKENS = torch.rand(32, 64), torch.rand(2, 8, 16)
PERCEPTRON, BLOCK = models.digits_classifier(16), models.transformer_block(16, 2)
NETWORKS = {
    "perceptron": partial(measure.predict_memory, PERCEPTRON, IMAGES),
    "block": partial(measure.predict_memory, BLOCK, TOKENS),
}


def footprint(saved=(), peak=None, source=COMPUTED):
    return Footprint(400, 400, 800, tuple(saved), peak or {"parameters": 400}, "backward", (), source)


@pytest.fixture
def view():
    return MemoryView(NETWORKS)


def bars(axes):
    """The widths of all bars, row by row from the top."""
    rows = {}
    for bar in axes.patches:
        rows.setdefault(round(bar.get_y() + bar.get_height() / 2, 3), []).append(bar.get_width())
    return [rows[y] for y in sorted(rows)]


def test_it_says_what_the_saved_tensor_hooks_count(view):
    view.network, view.precision = "perceptron", "fp16"
    wide = measure.saved_activation_bytes(PERCEPTRON, IMAGES)
    half = measure.saved_activation_bytes(PERCEPTRON, IMAGES, dtype=torch.float16)
    assert f"in fp32: {memory(sum(wide.values()))}." in view.caption
    assert f"Under fp16 autocast: {memory(sum(half.values()))}, " in view.caption
    assert f"{100 * sum(half.values()) / sum(wide.values()):.0f} % of that" in view.caption


def test_one_bar_per_layer_and_precision_adds_up_to_what_is_saved(view):
    view.network, view.precision = "block", "bf16"
    above = view.picture.figure.axes[0]
    expected = sum(sum(each.saved_bytes.values()) for each in view.footprints.values())
    assert sum(map(sum, bars(above))) == expected
    layers = {path or "the model's own forward()" for path in view.footprints["bf16"].saved_by_module()}
    assert layers <= set(written(above))


def test_the_whole_step_adds_up_to_the_peak(view):
    view.network = "block"
    below = view.picture.figure.axes[1]
    peaks = [each.peak_bytes for each in view.footprints.values()]
    assert list(map(sum, bars(below))) == peaks
    assert {memory(peak) for peak in peaks} <= set(written(below))


def test_fewer_names_put_layers_together(view):
    view.network = "block"
    assert view.depth == 2
    view.depth = 1
    above = view.picture.figure.axes[0]
    assert "perceptron" in written(above)
    assert "perceptron.0" not in written(above)
    expected = sum(sum(each.saved_bytes.values()) for each in view.footprints.values())
    assert sum(map(sum, bars(above))) == expected


def test_without_state_the_optimizer_takes_nothing(view):
    view.network = "perceptron"
    sizes = {}
    for optimizer in ("AdamW", "SGD"):
        view.optimizer = optimizer
        sizes[optimizer] = view.footprints["fp32"].optimizer_bytes
        unchanged = sum(p.nbytes for p in PERCEPTRON.parameters()) * 2 + sizes[optimizer]
        assert f"{memory(unchanged)}, stay in fp32" in view.caption
    assert sizes["SGD"] == 0 < sizes["AdamW"]
    view.optimizer = "AdamW"


def test_each_choice_is_predicted_once():
    calls = []

    def predict(**choice):
        calls.append(choice["precision_name"])
        return NETWORKS["perceptron"](**choice)

    view = MemoryView({"counted": predict})
    view.precision = "bf16"
    view.precision = "fp16"
    assert calls == ["fp32", "fp16", "bf16"]


@pytest.mark.parametrize("first", ["right", "wrong"])
def test_a_network_that_fails_is_answered_in_words(first):
    view = MemoryView(
        {"right": NETWORKS["perceptron"], "wrong": partial(measure.predict_memory, nn.ReLU(), IMAGES)}, first
    )
    view.network = "wrong"
    assert view.caption.startswith("there is nothing to train")
    assert view.caption in view.children[-1].value
    view.network = "right"
    assert view.caption.startswith("Computed (no GPU needed).")


def test_each_kind_of_memory_has_its_name_in_the_picture():
    peak = dict.fromkeys(KIND_COLOURS, 100)
    still = step_memory({"fp32": footprint(peak=peak), "fp16": footprint(peak=peak)})
    assert not list(faults(still.picture))


def test_copies_of_weights_are_hatched_and_named():
    saved = [Saved("a", torch.float16, 30, False), Saved("a", torch.float16, 50, True)]
    still = activation_stack(
        {"fp32": footprint([Saved("a", torch.float32, 60, False)]), "fp16": footprint(saved)}
    )
    (axes,) = still.picture.figure.axes
    assert bars(axes) == [[60], [30, 50]]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, False, True]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["kept in fp32", "kept in fp16", "copies of weights in fp16"]
    assert (
        "80 bytes, 133 % of that (50 bytes of it copies of weights, 0 bytes still in fp32)" in still.caption
    )


def test_of_many_layers_the_last_stand_together():
    saved = [Saved(f"layer{i}", torch.float32, 10, False) for i in range(LAYERS_IN_VIEW + 5)]
    (axes,) = memory_picture({"fp32": footprint(saved)}, parts=("layers",)).figure.axes
    assert bars(axes)[-1] == [50]
    assert "… 5 more" in written(axes)


def test_a_step_is_drawn_by_kind_with_the_peak_at_its_end():
    peak = {"parameters": 400, "workspace": 100, "saved activations": 500}
    footprints = {"fp32": footprint(peak=peak), "fp16": footprint()}
    (axes,) = memory_picture(footprints, parts=("step",)).figure.axes
    assert bars(axes) == [[400, 500, 100], [400]]
    assert [bar.get_x() for bar in axes.patches] == [0, 400, 900, 0]
    assert {"1000 bytes", "400 bytes"} <= set(written(axes))


def test_nothing_saved_is_said_without_a_division():
    still = activation_stack({"fp32": footprint(), "fp16": footprint()})
    assert "in fp32: 0 bytes." in still.caption


def test_what_was_measured_is_marked():
    measured = step_memory({"fp32": footprint(source=MEASURED), "fp16": footprint(source=MEASURED)})
    assert measured._repr_mimebundle_()["text/plain"].startswith(
        "[measured] Peak of the whole step, each bar at its own worst moment: 400 bytes"
    )
    assert "[measured]" not in step_memory({"fp32": footprint()})._repr_mimebundle_()["text/plain"]


def test_what_the_figures_leave_out_is_said_once():
    warned = partial(measure.predict_memory, torch.nn.LSTM(4, 4), torch.rand(2, 3, 4))
    view = MemoryView({"lstm": warned, **NETWORKS})
    stills = [show(view.footprints) for show in (activation_stack, step_memory)]
    for caption in (view.caption, *(still.caption for still in stills)):
        assert caption.count("Beware of the recurrent layer") == 1
    view.network = "block"
    assert "Beware" not in view.caption
