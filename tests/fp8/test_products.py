"""Scaled products against ``torch._scaled_mm``, and which engine computes them.

Kernels add up in orders of their own, which are not the same on every CPU: what they may differ by is the
rounding of sums in fp32, and of the result.
"""

import pytest
import torch
import torch.nn.functional as F

from amp_lessons import fp8
from amp_lessons.formats import FORMATS, relative_error
from tests.fp8.references import CONTENTS, difficult_matrix, filled

HALVES_AND_FP32 = [torch.float32, torch.bfloat16, torch.float16]
E4M3, E5M2 = FORMATS["fp8_e4m3"], FORMATS["fp8_e5m2"]


def operands(block, rule="exact", left=E4M3, right=E4M3):
    a, b = difficult_matrix(17, 50, seed=1), difficult_matrix(9, 50, seed=2)
    return fp8.quantize(a, fp8.Cast(left, block, rule)), fp8.quantize(b, fp8.Cast(right, block, rule))


def scaled_mm(left, right, dtype):
    """Call PyTorch's product on PyTorch's own cast of what the scale leaves of the source."""
    a, b = left.values.to(left.cast.element.dtype), right.values.to(right.cast.element.dtype)
    if left.cast.block == fp8.TENSOR:
        return torch._scaled_mm(a, b.t(), left.scales.reshape(()), right.scales.reshape(()), out_dtype=dtype)
    return torch._scaled_mm(a, b.t(), left.scales, right.scales.t().contiguous(), out_dtype=dtype)


def assert_same_sums(found, right, *pair):
    """Require the same numbers, to the rounding of a sum in fp32 in another order and of the result."""
    a, b = (each.dequantize().double().abs().nan_to_num(0, 0) for each in pair)
    room = 2.0**-23 * pair[0].values.shape[1] * (a @ b.t())
    if right.dtype != torch.float32:
        room = room + torch.finfo(right.dtype).eps * right.double().abs().nan_to_num(0, 0) + 1e-7
    off = (found.double() - right.double()).abs()
    same = (found == right) | (found.isnan() & right.isnan()) | (off <= room)
    assert bool(same.all()), f"{int((~same).sum())} of {same.numel()} numbers are more than rounding off"


@pytest.mark.parametrize("dtype", HALVES_AND_FP32)
@pytest.mark.parametrize("rule", ["exact", "up", "floor", "none"])
@pytest.mark.parametrize("block", [fp8.TENSOR, fp8.ROW])
@pytest.mark.parametrize(("left", "right"), [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2), (E5M2, E5M2)])
def test_both_engines_give_pytorchs_own_sums(left, right, block, rule, dtype):
    pair = operands(block, rule, left, right)
    try:
        expected = scaled_mm(*pair, dtype)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"this PyTorch has no such product: {error}")
    for engine in ("emulated", "device"):
        made = fp8.scaled_product(*pair, dtype=dtype, engine=engine)
        assert made.values.dtype == dtype
        assert_same_sums(made.values, expected, *pair)
        assert made.engine == fp8.Engine(engine, "asked for")


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("block", [fp8.TENSOR, fp8.ROW])
@pytest.mark.parametrize("sizes", [(17, 50, 9), (64, 512, 103), (1, 1, 1)], ids=str)
def test_pytorchs_own_sums_whatever_is_in_the_operands(sizes, block, content):
    rows, inner, columns = sizes
    cast = fp8.Cast(block=block)
    pair = fp8.quantize(filled(content, rows, inner), cast), fp8.quantize(torch.randn(columns, inner), cast)
    for engine in ("emulated", "device"):
        assert_same_sums(
            fp8.scaled_product(*pair, engine=engine).values, scaled_mm(*pair, torch.float32), *pair
        )


@pytest.mark.parametrize("block", [fp8.TENSOR, fp8.ROW])
def test_an_older_pytorch_is_asked_by_its_older_name(block, monkeypatch):
    left, right = operands(block)
    newer = fp8.scaled_product(left, right, engine="device").values
    monkeypatch.delattr(F, "scaled_mm", raising=False)
    assert_same_sums(fp8.scaled_product(left, right, engine="device").values, newer, left, right)


def test_the_values_are_those_of_pytorchs_own_cast():
    x = difficult_matrix(40, 70)
    made = fp8.quantize(x, fp8.Cast())
    cast = (x * (448 / x.abs().amax())).clamp(-448, 448).to(torch.float8_e4m3fn)
    assert torch.equal(made.values, cast.float())


@pytest.mark.parametrize("block", [(1, 16), (16, 16), (1, 32), (7, 9)])
def test_scales_per_block_come_to_the_sum_of_their_block(block):
    left, right = operands(block)
    expected = torch.zeros(17, 9)
    few = fp8.Accumulation(6, together=1)
    for start in range(0, 50, block[1]):
        part = slice(start, start + block[1])
        row_scales, column_scales = (
            each.dequantize()[:, part].norm(dim=1) / each.values[:, part].norm(dim=1).clamp(min=1e-30)
            for each in (left, right)
        )
        sums = fp8.accumulate(left.values[:, part], right.values[:, part], few)
        expected += sums * row_scales[:, None] * column_scales[None]
    made = fp8.scaled_product(left, right, accumulation=few)
    assert relative_error(made.values, expected) < 1e-6


@pytest.mark.parametrize("blocks", [(fp8.TENSOR, fp8.TENSOR), ((1, 48), (1, 32))])
def test_enough_bits_are_fp32_also_of_blocks_of_different_widths(blocks):
    a, b = difficult_matrix(4, 96, seed=3), difficult_matrix(5, 96, seed=4)
    left, right = (fp8.quantize(x, fp8.Cast(block=block)) for x, block in zip((a, b), blocks, strict=True))
    few = fp8.scaled_product(left, right, accumulation=fp8.Accumulation(23)).values
    torch.testing.assert_close(few, fp8.scaled_product(left, right).values, rtol=1e-4, atol=1e-4)


def test_a_cpu_is_asked_and_says_what_it_refuses():
    left, right = operands((1, 32))
    with pytest.raises(RuntimeError, match=r"engine='device' cannot be had: kernels are used for .* 1 × 32"):
        fp8.scaled_product(left, right, engine="device")
    mx = fp8.engines("nvfp4")["output"]
    assert (mx.name, mx.reason) == ("emulated", "PyTorch casts nothing to four bits")
    assert "14 bits" in fp8.engines("deepseek_v3")["output"].reason
    assert "takes longer" in fp8.engines("tensorwise")["output"].reason
    assert fp8.engines("rowwise_with_gw_hp")["weight_gradient"].name == "none"


def test_a_kernel_that_fails_is_refused_with_its_own_words(monkeypatch):
    def refuse(*_, **__):
        raise NotImplementedError("only on Mars\nand more")

    fp8.products._tried.cache_clear()
    monkeypatch.setattr(F, "scaled_mm", refuse, raising=False)
    try:
        left, right = operands(fp8.TENSOR)
        with pytest.raises(RuntimeError, match="cpu refuses it: only on Mars; engine='auto' emulates it"):
            fp8.scaled_product(left, right, engine="device")
    finally:
        fp8.products._tried.cache_clear()


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_a_device_that_is_not_there_refuses():
    assert {each.name for each in fp8.engines("tensorwise", "cuda").values()} == {"emulated"}
    assert fp8.engines("tensorwise", "cuda")["output"].reason.startswith("cuda refuses it: ")


@pytest.mark.parametrize("engine", ["emulated", "device"])
def test_nothing_is_multiplied_to_nothing(engine):
    for rows, inner, columns in ((0, 4, 3), (2, 0, 3), (2, 4, 0)):
        left, right = (fp8.quantize(torch.ones(side, inner), fp8.Cast()) for side in (rows, columns))
        values = fp8.scaled_product(left, right, engine=engine).values
        assert values.shape == (rows, columns)
        assert not values.any()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"engine": "gpu"}, ValueError, "no engine 'gpu'"),
        ({"dtype": torch.float64}, ValueError, r"dtype is torch\.float32, .* not torch\.float64"),
        ({"left": torch.ones(2, 2)}, TypeError, r"left is a tensor that fp8\.quantize returned"),
        ({"right": fp8.quantize(torch.ones(2, 3), fp8.Cast())}, ValueError, r"not \(17, 50\) and \(2, 3\)"),
    ],
)
def test_bad_arguments_are_answered_in_words(changes, error, message):
    left, right = operands(fp8.TENSOR)
    with pytest.raises(error, match=message):
        fp8.scaled_product(**{"left": left, "right": right, **changes})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
@pytest.mark.parametrize("block", [fp8.TENSOR, fp8.ROW])
def test_a_gpu_computes_what_the_emulation_says(block):
    a, b = torch.randn(50, 70, device="cuda"), torch.randn(30, 70, device="cuda")
    left, right = (fp8.quantize(each, fp8.Cast(block=block)) for each in (a, b))
    emulated = fp8.scaled_product(left, right, dtype=torch.bfloat16, engine="emulated").values
    made = fp8.scaled_product(left, right, dtype=torch.bfloat16)
    torch.testing.assert_close(made.values, emulated, rtol=2**-7, atol=1e-2)
    if torch.cuda.get_device_capability() >= (8, 9):
        assert made.engine.name == "device", made.engine.reason
