"""Tensors in few bits beside their scales, against loops over blocks in NumPy and ml_dtypes."""

import math

import pytest
import torch

from amp_lessons import fp8
from amp_lessons.formats import FORMATS
from tests.fp8.references import CONTENTS, assert_same_bits, dequantized, difficult_matrix, filled

E8M0, E4M3 = FORMATS["e8m0"], FORMATS["fp8_e4m3"]
BLOCKS = [fp8.TENSOR, fp8.ROW, (1, 16), (1, 32), (16, 16), (1, 128), (128, 128), (7, 3)]
CASTS = [
    fp8.Cast(FORMATS[element], block, rule)
    for element in ("fp8_e4m3", "fp8_e5m2", "fp4_e2m1")
    for rule in ("none", "exact", "up", "floor", "even", "nearest")
    for block in BLOCKS
]
CASTS += [fp8.Cast(FORMATS["fp4_e2m1"], block, scale=E4M3, has_tensor_scale=True) for block in BLOCKS]
OF_RECIPES = dict.fromkeys(
    cast
    for recipe in fp8.RECIPES.values()
    for product in recipe.products.values()
    if product
    for cast in (product.left, product.right)
)  # each once, in an order that every test process agrees on


@pytest.mark.parametrize("cast", CASTS, ids=lambda cast: f"{cast} {cast.rule} {cast.scale.name}")
def test_casts_are_what_a_loop_over_blocks_finds(cast):
    smallest = torch.full((3, 40), 2.0**-149)
    for x in (difficult_matrix(), difficult_matrix(1, 1), difficult_matrix(130, 5) * 2.0**-90, smallest):
        assert torch.equal(fp8.quantize(x, cast).dequantize(), dequantized(x, cast))
    for content in CONTENTS:  # whatever shares a scale with an infinity or a NaN is NaN, and nothing else
        if (cast.rule, cast.element.has_nan, content) != ("none", False, "nan"):
            x = filled(content, 20, 40)
            assert_same_bits(fp8.quantize(x, cast).dequantize(), dequantized(x, cast))


@pytest.mark.parametrize("cast", OF_RECIPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1)])
def test_one_element(cast, shape):
    made = fp8.quantize(torch.full(shape, -3.0), cast)
    assert made.values.shape == made.dequantize().shape == shape
    assert float(made.dequantize()) == pytest.approx(-3.0, rel=0.04)
    assert made.amax.tolist() == [[3.0]]


@pytest.mark.parametrize("cast", OF_RECIPES, ids=str)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5), (0, 0)])
def test_no_elements(cast, shape):
    made = fp8.quantize(torch.empty(shape), cast)
    assert made.dequantize().shape == shape
    assert (made.saturated, made.underflowed, made.bytes_of_values) == (0, 0, 0)
    assert made.scales.shape == made.amax.shape


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_any_float_of_any_shape_and_stride(dtype):
    x = torch.randn(6, 40, 5).to(dtype)
    cast = fp8.Cast(block=(1, 32))
    across = x.transpose(1, 2)
    made = fp8.quantize(across, cast)
    assert torch.equal(made.dequantize(), fp8.quantize(across.float().contiguous(), cast).dequantize())
    assert torch.equal(made.dequantize().reshape(30, 40), dequantized(across.reshape(30, 40), cast))
    assert made.scales.shape == (30, 2)


def test_the_tensor_itself_stays_as_it_is():
    x = torch.randn(4, 32, requires_grad=True)
    before = x.detach().clone()
    assert not fp8.quantize(x, fp8.Cast(rule="none")).dequantize().requires_grad
    assert torch.equal(x, before)


def test_bytes_of_scales_follow_the_blocks():
    sizes = {
        fp8.Cast(rule="none"): (6144, 0),
        fp8.Cast(): (6144, 4),
        fp8.Cast(block=fp8.ROW): (6144, 256),
        fp8.RECIPES["mxfp8"].output.left: (6144, 192),
        fp8.RECIPES["nvfp4"].output.left: (3072, 64 * 6 + 4),
        fp8.Cast(block=(1, 128)): (6144, 256),
    }
    for cast, expected in sizes.items():
        made = fp8.quantize(torch.ones(64, 96), cast)
        assert (made.bytes_of_values, made.bytes_of_scales) == expected, cast


def test_what_saturates_and_what_underflows_is_counted():
    unscaled = fp8.Cast(rule="none")
    x = torch.tensor([0.0, 1.0, 448.0, 463.9, 464.0, -1e6, math.inf, 2.0**-10, 2.0**-10 * 1.01, -1e-9])
    made = fp8.quantize(x, unscaled)
    assert (made.saturated, made.underflowed) == (3, 2)  # 2^-10 is a tie with zero, which is even
    assert made.values.tolist()[2:7] == [448, 448, 448, -448, 448]
    unwatched = fp8.quantize(x, unscaled, count=False)
    assert (unwatched.saturated, unwatched.underflowed) == (None, None)


def test_a_scale_in_e4m3_with_none_of_the_tensor_beside_is_poisoned_too():
    assert fp8.quantize(torch.tensor([1.0, math.inf]), fp8.Cast(scale=E4M3)).dequantize().isnan().all()


def test_a_stale_amax_saturates_an_infinity_too():
    made = fp8.quantize(torch.tensor([1.0, 900.0, math.inf]), fp8.Cast(), amax=torch.tensor(448.0))
    assert made.dequantize().tolist() == [1, 448, 448]
    assert made.saturated == 2
    assert made.amax.item() == math.inf


def test_the_rule_to_the_nearest_power_loses_up_to_29_percent():
    amax = 448 * torch.linspace(1, 2, 2001)[:, None]
    lost = {
        rule: 1 - (fp8.quantize(amax, fp8.Cast(block=(1, 32), rule=rule)).dequantize() / amax).min().item()
        for rule in ("nearest", "floor", "up")
    }
    assert lost["nearest"] == pytest.approx(1 - 2**-0.5, abs=1e-3)
    assert lost["floor"] == pytest.approx(1 - 448 / 512, abs=1e-3)
    assert lost["up"] < 1 / 16


def test_stochastic_rounding_is_right_on_average_and_repeatable():
    cast = fp8.Cast(FORMATS["fp4_e2m1"], (1, 16), "up", E8M0, stochastic=True)
    x = torch.tensor([6.0, 0.2, -1.3] + [0.0] * 13).repeat(4000, 1)
    back = fp8.quantize(x, cast, generator=torch.Generator().manual_seed(0)).dequantize()
    assert back[:, :3].mean(0).tolist() == pytest.approx([6, 0.2, -1.3], abs=0.02)
    assert set(back[:, 1].tolist()) == {0, 0.5}
    again = fp8.quantize(x, cast, generator=torch.Generator().manual_seed(0)).dequantize()
    assert torch.equal(back, again)


@pytest.mark.parametrize("block", [fp8.TENSOR, (16, 16), (128, 128)])
def test_a_cast_with_square_blocks_is_that_of_the_transpose(block):
    x = difficult_matrix(40, 150)
    turned = fp8.quantize(x, fp8.Cast(block=block)).transposed()
    assert torch.equal(turned.dequantize(), fp8.quantize(x.t(), fp8.Cast(block=block)).dequantize())


def test_a_cast_along_rows_is_not_that_of_the_transpose():
    made = fp8.quantize(difficult_matrix(), fp8.Cast(block=(1, 32)))
    with pytest.raises(ValueError, match=r"scales per 1 × 32: cast its transpose"):
        made.transposed()


def test_an_amax_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"amax is one number, or one per block, here \(2, 1\), not \(3,\)"):
        fp8.quantize(torch.ones(2, 4), fp8.Cast(block=fp8.ROW), amax=torch.ones(3))
