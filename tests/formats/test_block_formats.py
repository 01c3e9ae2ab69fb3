"""Shared scales, against loops over blocks by NumPy and ml_dtypes."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from amp_lessons.formats import BLOCK_FORMATS, FORMATS, per_tensor, scaling_error
from amp_lessons.fp8 import Cast
from tests.fp8.references import CONTENTS, assert_same_bits, dequantized, filled

MX = [name for name in BLOCK_FORMATS if name.startswith("mx")]


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("content", CONTENTS)
def test_mx_follows_section_6_3_of_the_specification_block_by_block(name, content):
    mx, x = BLOCK_FORMATS[name], filled(content, 8, 96)
    expected = dequantized(x, Cast(mx.element, (1, 32), "floor", mx.scale))
    assert_same_bits(mx.quantize(x).dequantize(), expected)


def test_nvfp4_follows_the_recipe():
    x = torch.randn(8, 96)
    x[::2, 5] = 1000.0
    tensor_scale = np.float32(x.abs().max() / (6 * 448))
    for block, actual in zip(
        x.numpy().reshape(-1, 16),
        BLOCK_FORMATS["nvfp4"].quantize(x).dequantize().numpy().reshape(-1, 16),
        strict=True,
    ):
        scale = (np.abs(block).max() / tensor_scale / np.float32(6)).astype(ml_dtypes.float8_e4m3fn)
        scale = np.float32(scale) * tensor_scale
        elements = (block / scale).clip(-6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
        np.testing.assert_allclose(actual, elements * scale, rtol=1e-6)


def test_nvfp4_loses_blocks_whose_scale_underflows():
    x = torch.cat([torch.full((16,), 1e6), torch.full((16,), 1e-3)])
    assert BLOCK_FORMATS["nvfp4"].quantize(x).dequantize().tolist() == [1e6] * 16 + [0.0] * 16


@pytest.mark.parametrize("scaled_format", [BLOCK_FORMATS["nvfp4"], per_tensor(FORMATS["fp8_e4m3"])])
def test_a_shared_scale_shares_nan(scaled_format):
    for poison in (math.nan, math.inf):
        x = torch.ones(64)
        x[3] = poison
        assert scaled_format.quantize(x).dequantize().isnan().all()


def test_per_tensor_maps_the_largest_element_to_max():
    scaled = per_tensor(FORMATS["fp8_e4m3"]).quantize(torch.tensor([[-7.0, 3.0], [1.0, 0.0]]))
    assert scaled.elements[0, 0] == -448
    assert scaled.dequantize()[0, 0] == -7
    assert scaled.elements.shape == (2, 2)


@pytest.mark.parametrize(
    ("name", "bits"), [("mxfp8_e4m3", 8.25), ("mxfp8_e5m2", 8.25), ("mxfp4", 4.25), ("nvfp4", 4.5 + 32 / 512)]
)
def test_bits_per_element_count_every_scale(name, bits):
    assert BLOCK_FORMATS[name].quantize(torch.randn(8, 64)).bits_per_element == bits


@pytest.mark.parametrize("scaled_format", [*BLOCK_FORMATS.values(), per_tensor(FORMATS["fp8_e4m3"])])
@pytest.mark.parametrize("value", [0.0, 1e-45, 2e38])
def test_the_smallest_and_the_largest_stay_finite(scaled_format, value):
    back = scaled_format.quantize(torch.full((2, 32), value)).dequantize()
    assert back.isfinite().all()
    assert (back >= 0).all()
    assert back.max() <= 2 * torch.tensor(value)


def test_a_last_block_may_be_shorter():
    x = torch.randn(3, 40)
    scaled = BLOCK_FORMATS["mxfp4"].quantize(x)
    assert scaled.scales.shape == (3, 2)
    assert scaled.bits_per_element == 4 + 3 * 2 * 8 / 120
    whole = BLOCK_FORMATS["mxfp4"].quantize(x[:, :32]).dequantize()
    rest = BLOCK_FORMATS["mxfp4"].quantize(x[:, 32:]).dequantize()
    assert torch.equal(scaled.dequantize(), torch.cat([whole, rest], dim=1))


def test_scaling_error_is_what_a_loop_finds():
    x = torch.tensor([0.0, 1.0, -0.3, 0.01, 6.0])
    error = scaling_error(x, per_tensor(FORMATS["fp4_e2m1"]))  # scale 1: 0, 1, -0.5, 0, 6
    assert error.underflow_fraction == 1 / 4
    assert error.lost.tolist() == [False, False, False, True, False]
    assert error.median_relative_error == 0  # the lower of the two middle ones of 0, 0, 2/3, 1
    assert error.relative_error == pytest.approx(math.hypot(0.2, 0.01) / math.hypot(1, 0.3, 0.01, 6))
    assert error.bits_per_element == 4 + 32 / 5


def test_bad_input_is_answered_in_words():
    with pytest.raises(ValueError, match="elements along a last dimension"):
        BLOCK_FORMATS["mxfp4"].quantize(torch.tensor(1.0))
    with pytest.raises(ValueError, match="elements along a last dimension"):
        BLOCK_FORMATS["mxfp4"].quantize(torch.empty(2, 0))
    with pytest.raises(TypeError, match="float32"):
        BLOCK_FORMATS["mxfp4"].quantize(torch.ones(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="Every element is zero"):
        scaling_error(torch.zeros(4), BLOCK_FORMATS["mxfp4"])
