"""Where a scale puts the elements of a tensor, against counting by hand and PyTorch's own casts."""

import math

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.course.material import tensors
from amp_lessons.formats import FORMATS

E4M3, E5M2, FP4 = (FORMATS[name] for name in ("fp8_e4m3", "fp8_e5m2", "fp4_e2m1"))


def test_each_of_five_elements_meets_its_fate():
    x = torch.tensor([[0.0, 2.0**-11, 2.0**-8, -3.0, 1000.0]])
    placement = fp8.place_by_hand(x, E4M3, 0)
    assert placement.fates == {
        "underflowed": {-11: 1},
        "subnormal": {-8: 1},
        "normal": {1: 1},
        "overflowed": {9: 1},
    }
    assert placement.at_stake == 4
    assert placement.quantized.values.tolist() == [[0.0, 0.0, 2.0**-8, -3.0, 448.0]]


@pytest.mark.parametrize("element", [E4M3, E5M2, FP4])
@pytest.mark.parametrize("exponent", [-3, 0, 12, 16, 30])
def test_a_multiplier_by_hand_is_multiplying_clamping_and_casting(element, exponent):
    x = tensors.gradient_like()
    placement = fp8.place_by_hand(x, element, exponent)
    within = (x * 2.0**exponent).clamp(-element.max, element.max)
    back = element.quantize(within) * 2.0**-exponent
    assert torch.equal(placement.quantized.dequantize(), back)
    error = (back.double() - x.double()).norm() / x.double().norm()
    assert placement.relative_error() == pytest.approx(error.item())
    assert placement.count("underflowed") == int(((back == 0) & (x != 0)).sum())


@pytest.mark.parametrize("way", fp8.granularities(E4M3))
@pytest.mark.parametrize("element", [E4M3, E5M2, FP4])
def test_every_element_is_counted_once_as_the_cast_counts_it(element, way):
    x = tensors.gradient_like()
    placement = fp8.place(x, fp8.granularities(element)[way])
    assert sum(map(placement.count, placement.fates)) == placement.at_stake == x.numel()
    assert placement.count("underflowed") == placement.quantized.underflowed
    assert placement.count("overflowed") == placement.quantized.saturated
    made = placement.quantized
    assert torch.equal(made.values * made.element_scales, made.dequantize())


@pytest.mark.parametrize("largest", [448.0, 449.0, 1e-6, 2.0**-30])
def test_the_fitting_exponent_is_the_last_that_fits(largest):
    x = torch.tensor([largest, largest / 3])
    exponent = fp8.fitting_exponent(x, E4M3)
    assert largest * 2.0**exponent <= 448 < largest * 2.0 ** (exponent + 1)


def test_the_error_can_leave_out_an_outlier():
    x = torch.full((2, 2), 1.1)
    x[0, 1] = 1e9
    placement = fp8.place_by_hand(x, E4M3, 0)
    assert placement.relative_error() == pytest.approx(1, rel=1e-5)  # the outlier became 448
    assert placement.relative_error(without=(0, 1)) == pytest.approx((1.125 - 1.1) / 1.1, rel=1e-3)


def test_a_scale_of_zero_leaves_elements_below_everything():
    x = torch.ones(1, 32)
    x[0, 20] = 1e9
    placement = fp8.place(x, fp8.granularities(FP4)["1 × 16"])
    assert placement.count("underflowed") == 31
    assert min(placement.fates["underflowed"]) < -100


@pytest.mark.parametrize("spoilt", [math.nan, math.inf, 0.0])
def test_what_no_scale_can_be_found_for_is_refused(spoilt):
    with pytest.raises(ValueError, match="finite numbers, at least one of them not zero"):
        fp8.place(torch.full((2, 2), spoilt), fp8.Cast())
    with pytest.raises(ValueError, match="finite numbers"):
        fp8.fitting_exponent(torch.zeros(0), E4M3)
    with pytest.raises(ValueError, match="exponent is at most 100, not 101"):
        fp8.place_by_hand(torch.ones(2), E4M3, 101)


def test_the_made_up_gradient_is_spread_as_said():
    x = tensors.gradient_like(64, 512)
    assert x.shape == (64, 512)
    assert x.abs().median().log2().item() == pytest.approx(-18, abs=1.5)
    rows = x.norm(dim=1).log2()
    assert 1 < rows.std() < 3
    assert torch.equal(x, tensors.gradient_like(64, 512))
    assert not torch.equal(x, tensors.gradient_like(64, 512, seed=1))
