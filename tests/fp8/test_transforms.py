"""Hadamard matrices against SciPy's, and what a random transform must leave alone."""

import pytest
import torch
from scipy.linalg import hadamard as scipy_hadamard

from amp_lessons import fp8, measure
from amp_lessons.formats import FORMATS, relative_error
from amp_lessons.fp8 import transforms


@pytest.mark.parametrize("size", [1, 2, 16, 64])
def test_the_matrix_is_scipys_over_its_norm(size):
    expected = torch.from_numpy(scipy_hadamard(size)).float() * size**-0.5
    assert torch.equal(fp8.hadamard(size), expected)


@pytest.mark.parametrize("columns", [1, 16, 33])
def test_no_product_changes(columns):
    a, b = torch.randn(5, columns), torch.randn(7, columns)
    turned = fp8.random_hadamard(a) @ fp8.random_hadamard(b).t()
    torch.testing.assert_close(turned, a @ b.t())
    assert not torch.allclose(
        fp8.random_hadamard(a, seed=1)[:, :columns], fp8.random_hadamard(a)[:, :columns]
    )


def test_what_was_predicted_on_fake_tensors_can_be_trained():
    transforms._turn.cache_clear()  # as for whoever predicts first
    model = fp8.convert(torch.nn.Sequential(torch.nn.Linear(32, 32)), "nvfp4", keep=())
    x = torch.randn(4, 32)
    assert measure.predict_memory(model, x).peak_bytes > 0
    model(x).sum().backward()
    assert model[0].weight.grad.isfinite().all()


def test_an_outlier_is_spread_over_its_block_alone():
    x = torch.zeros(2, 48)
    x[0, 20] = 8.0
    assert fp8.random_hadamard(x)[0].abs().tolist() == [0.0] * 16 + [2.0] * 16 + [0.0] * 16


def test_mxfp4_bears_outliers_better_once_they_are_spread():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 256, generator=generator)
    x[:, ::16] *= 30  # one in every block
    cast = fp8.Cast(FORMATS["fp4_e2m1"], (1, 32), "up", FORMATS["e8m0"])
    plain, spread = (
        relative_error(fp8.quantize(each, cast).dequantize(), each) for each in (x, fp8.random_hadamard(x))
    )
    assert plain > 1.25 * spread


@pytest.mark.parametrize("size", [0, 3, 12, 8192])
def test_other_sizes_are_refused(size):
    with pytest.raises(ValueError, match="size is a"):
        fp8.hadamard(size)
