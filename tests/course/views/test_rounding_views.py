"""The views of what rounding does to updates and blocks."""

import pytest
import torch

from amp_lessons.course.views import OutlierView, UpdateView
from amp_lessons.formats import BLOCK_FORMATS, FORMATS, per_tensor


def bf16_loop(update, steps):
    weight = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(steps):
        weight = (weight.float() + update).bfloat16()
    return weight.item()


@pytest.mark.parametrize("exponent", [-12, -8, -7, -2])
def test_the_plain_weight_is_the_one_that_pytorch_arrives_at(exponent):
    view = UpdateView(exponent, steps=100)
    assert f"plain {bf16_loop(2.0**exponent, 100):.6g}," in view.caption


def test_the_fp32_copy_arrives_at_the_rounded_exact_sum():
    view = UpdateView(-10, steps=300)
    exact = 1 + 300 * 2.0**-10
    assert f"1 plus 300 times 2⁻¹⁰ is {exact:.6g}." in view.caption
    assert f"fp32 copy {torch.tensor(exact).bfloat16().item():.6g}," in view.caption


def normal_matrix():
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(0))


def test_the_outlier_costs_fp4_everything_and_a_block_only_itself():
    matrix = normal_matrix()
    view = OutlierView(matrix, 10, [per_tensor(FORMATS["fp4_e2m1"]), BLOCK_FORMATS["mxfp4"]])
    assert "fp4_e2m1 per tensor over 99.9 %" in view.caption
    whole, block = (axes.images[0].get_array() for axes in view.picture.figure.axes)
    dark = whole[0, 0]
    assert (whole == dark).all(-1).sum() == matrix.numel() - 1
    lost = (block == dark).all(-1)
    assert lost[16, 33:].all(), "the rest of the outlier's block of 32"
    assert lost.mean() < 0.2


def test_the_learners_matrix_is_left_alone():
    matrix = normal_matrix()
    before = matrix.clone()
    OutlierView(matrix, 4)
    assert torch.equal(matrix, before)
