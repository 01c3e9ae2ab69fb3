"""Picking a scale by hand: what the view says, against PyTorch's own cast; its story says what it draws."""

import pytest
import torch

from amp_lessons._base.text.words import relative, share
from amp_lessons.course.views import ScaleView
from amp_lessons.course.views.widgets.scale import ELEMENTS
from tests.raised import lowered


@pytest.fixture
def tensor():
    return torch.randn(16, 256, generator=torch.Generator().manual_seed(0)) * 2.0**-12


@pytest.mark.parametrize("exponent", [-2, 12, 22])
def test_the_caption_says_what_pytorchs_own_cast_does(tensor, exponent):
    caption = ScaleView(tensor, exponent=exponent).caption
    cast = (tensor * 2.0**exponent).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    error = ((cast * 2.0**-exponent).double() - tensor.double()).norm() / tensor.double().norm()
    assert lowered(caption).startswith(f"Multiplied by 2^{exponent} (scale 2^{-exponent}), in fp8_e4m3: ")
    assert f"{share(int((cast == 0).sum()), 4096)} of 4,096 elements become zero" in caption
    assert f"Error: {relative(error.item())} of the norm." in caption


def test_an_outlier_costs_four_bits_the_tensor_and_a_block_only_itself_and_the_tensor_is_left_alone(tensor):
    before = tensor.clone()
    view = ScaleView(tensor, "fp4_e2m1", outlier=6)
    errors = [view.error_of(way) for way in ("1 × 16", "1 × 32", "1 × 128", "row", "tensor")]
    assert errors == sorted(errors)
    assert errors[0] < 0.2
    assert errors[-1] > 0.9
    assert torch.equal(tensor, before)


@pytest.mark.parametrize("format", ELEMENTS)
def test_the_slider_reaches_from_losing_all_to_saturating(format):
    view = ScaleView(format=format)
    view.exponent = view._slider.max
    assert "none saturate" not in view.caption
    view.exponent = view._slider.min
    assert "none saturate" in view.caption


def test_one_dimension_is_enough_and_zeros_do_not_count():
    assert "of 2 elements" in ScaleView(torch.tensor([0.0, 1.0, 2.0]), outlier=3).caption
