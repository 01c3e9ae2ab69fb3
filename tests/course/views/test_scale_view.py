"""Picking a scale by hand: what the view says and draws, against PyTorch's own cast."""

import pytest
import torch

from amp_lessons import fp8
from amp_lessons._base.text.words import relative, share
from amp_lessons.course.views import ScaleView
from amp_lessons.course.views.widgets.scale import ELEMENTS, WAYS
from amp_lessons.formats import FORMATS
from tests.raised import lowered


@pytest.fixture
def tensor():
    return torch.randn(16, 256, generator=torch.Generator().manual_seed(0)) * 2.0**-12


@pytest.fixture
def view(tensor):
    return ScaleView(tensor)


def errors_drawn(view):
    bars = view.picture.figure.axes[1].containers[0]
    return dict(zip(WAYS, (bar.get_x() + bar.get_width() for bar in bars), strict=True))


@pytest.mark.parametrize("exponent", [-2, 0, 6, 12, 22])
def test_the_caption_says_what_pytorchs_own_cast_does(view, tensor, exponent):
    view.exponent = exponent
    cast = (tensor * 2.0**exponent).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    error = ((cast * 2.0**-exponent).double() - tensor.double()).norm() / tensor.double().norm()
    assert lowered(view.caption).startswith(
        f"Multiplied by 2^{exponent} (scale 2^{-exponent}), in fp8_e4m3: "
    )
    assert f"{share(int((cast == 0).sum()), 4096)} of 4,096 elements become zero" in view.caption
    assert f"Error: {relative(error.item())} of the norm." in view.caption


def test_bars_add_up_to_all_elements(view):
    for way in WAYS:
        view.way = way
        tops = view.picture.moving[3].get_data()  # the uppermost part of each bar
        assert tops.values.sum() == pytest.approx(100)


@pytest.mark.parametrize("way", WAYS[1:])
def test_each_granularity_says_its_error_and_the_bytes_of_its_scales(view, tensor, way):
    view.way = way
    made = fp8.quantize(tensor, fp8.granularities(FORMATS["fp8_e4m3"])[way])
    assert view.caption.startswith(f"One scale per {way}, in fp8_e4m3: ")
    assert f" {made.bytes_of_scales:,.0f} bytes" in view.caption
    error = ((made.dequantize() - tensor).double().norm() / tensor.double().norm()).item()
    assert f"Error: {relative(error)} of the norm." in view.caption
    assert errors_drawn(view)[way] == pytest.approx(error)


def test_an_outlier_costs_four_bits_the_tensor_and_a_block_only_itself(view):
    view.format = "fp4_e2m1"
    view.way = "tensor"
    before = errors_drawn(view)
    view.outlier = 6
    after = errors_drawn(view)
    assert "One element is 2⁶ = 64 times the largest." in view.caption
    assert "of the norm of all others." in view.caption
    assert after["tensor"] > 0.9 > 4 * before["tensor"]
    assert after["1 × 16"] < 0.2
    assert after["1 × 16"] < after["1 × 32"] < after["1 × 128"] < after["row"] < after["tensor"]


def test_the_learners_tensor_is_left_alone(view, tensor):
    before = tensor.clone()
    view.outlier = 20
    assert torch.equal(tensor, before)


@pytest.mark.parametrize("format", ELEMENTS)
def test_the_slider_reaches_from_losing_all_to_saturating(format):
    view = ScaleView(format=format)
    assert "in " + format in view.caption
    view.exponent = view._slider.max
    assert "none saturate" not in view.caption
    view.exponent = view._slider.min
    assert "none saturate" in view.caption


def test_one_dimension_is_enough_and_zeros_do_not_count():
    view = ScaleView(torch.tensor([0.0, 1.0, 2.0]), outlier=3)
    assert "of 2 elements" in view.caption
