"""The views of what rounding does to updates and blocks, against PyTorch."""

import pytest
import torch

from amp_lessons.course.views import OutlierView, UpdateView


@pytest.mark.parametrize("exponent", [-8, -7])
def test_the_weights_are_those_that_pytorch_arrives_at(exponent):
    view = UpdateView(exponent, steps=100)
    plain = torch.tensor(1.0, dtype=torch.bfloat16)
    for _ in range(100):
        plain = (plain.float() + 2.0**exponent).bfloat16()
    exact = 1 + 100 * 2.0**exponent
    assert f"plain {plain.item():.6g}, fp32 copy {torch.tensor(exact).bfloat16().item():.6g}," in view.caption


def test_the_learners_matrix_is_left_alone():
    matrix = torch.randn(32, 64)
    before = matrix.clone()
    OutlierView(matrix, 4)
    assert torch.equal(matrix, before)
