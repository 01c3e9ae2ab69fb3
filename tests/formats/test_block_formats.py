"""Shared scales, against one-block-at-a-time references built on ml_dtypes."""

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from amp_lessons.formats import BLOCK_FORMATS, FORMATS, per_tensor, scaling_error

ELEMENTS = {
    "mxfp8_e4m3": (ml_dtypes.float8_e4m3fn, 448, 8),
    "mxfp8_e5m2": (ml_dtypes.float8_e5m2, 57344, 15),
    "mxfp4": (ml_dtypes.float4_e2m1fn, 6, 2),
}


def mx_block(block, dtype, largest, largest_power):
    """Follow section 6.3 of OCP MX v1.0 for one block, with exact scales."""
    amax = float(np.abs(block).max())
    if not math.isfinite(amax):
        return np.full_like(block, np.nan)
    power = math.frexp(amax)[1] - 1 - largest_power if amax else -127
    scale = 2.0 ** min(max(power, -127), 127)
    elements = np.clip(block.astype(np.float64) / scale, -largest, largest).astype(np.float32).astype(dtype)
    return (elements.astype(np.float64) * scale).astype(np.float32)


def tensors():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(8, 96, generator=generator)
    with_outliers, with_nonfinite = normal.clone(), normal.clone()
    with_outliers[::2, 5] = 1000.0
    with_nonfinite[0, 0], with_nonfinite[1, 40], with_nonfinite[2, 95] = math.nan, math.inf, -math.inf
    return {
        "normal": normal,
        "outliers": with_outliers,
        "every magnitude": normal
        * torch.exp2(torch.randint(-140, 120, (8, 96), generator=generator).float()),
        "subnormal": normal * 2.0**-130,
        "zeros": torch.zeros(2, 64),
        "nonfinite": with_nonfinite,
        "largest": torch.full((1, 32), torch.finfo(torch.float32).max),
    }


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("kind", tensors())
def test_mx_follows_the_specification(name, kind):
    x = tensors()[kind]
    blocks = x.numpy().reshape(-1, 32)
    expected = np.stack([mx_block(block, *ELEMENTS[name]) for block in blocks]).reshape(x.shape)
    actual = BLOCK_FORMATS[name].quantize(x).dequantize()
    np.testing.assert_array_equal(actual.numpy(), expected)


def test_nvfp4_follows_the_recipe():
    x = tensors()["outliers"]
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
@pytest.mark.parametrize("value", [0.0, 1e-45])
def test_nothing_and_next_to_nothing_stay_finite(scaled_format, value):
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
