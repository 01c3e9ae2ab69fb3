"""The same casts and layers in torchao, bit for bit wherever it rounds where we do."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from amp_lessons import fp8
from amp_lessons.formats import FORMATS
from tests.fp8.references import CONTENTS, assert_same_bits, filled

torchao = pytest.importorskip("torchao", exc_type=ImportError)
config = pytest.importorskip("torchao.float8.config", exc_type=ImportError)
float8_linear = pytest.importorskip("torchao.float8.float8_linear", exc_type=ImportError)

HALF = {"bf16": torch.bfloat16, "fp32": torch.float32}


def operands(dtype, tokens=64, inputs=96, outputs=128):
    generator = torch.Generator().manual_seed(0)
    x, weight, gradient = (
        torch.randn(*shape, generator=generator)
        for shape in ((tokens, inputs), (outputs, inputs), (tokens, outputs))
    )
    return [x.to(dtype), weight.to(dtype), (1e-4 * gradient).to(dtype)]


def pass_through(layer, x, weight, gradient):
    x, weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
    output = layer(x, weight)
    output.backward(gradient)
    return [output.detach(), x.grad, weight.grad]


def theirs(recipe, emulate):
    settings = replace(config.Float8LinearConfig.from_recipe_name(recipe), emulate=emulate)

    def layer(x, weight):
        made = float8_linear.Float8Linear.from_float(nn.Linear(*weight.t().shape), settings)
        parameters = {"weight": weight, "bias": weight[:, 0].detach()}
        return torch.func.functional_call(made, parameters, (x,))

    return layer


# Where torchao's own answer is another: its emulation divides by the multiplier instead of multiplying by the
# scale, one more rounding; its rowwise kernel computes in bf16 where fp32 is asked for
ROUNDED_ELSEWHERE = {
    ("tensorwise", "fp32", True): 1e-6,
    ("tensorwise", "bf16", True): 1e-3,
    ("rowwise", "fp32", False): 4e-3,
    ("rowwise_with_gw_hp", "fp32", False): 4e-3,
}


@pytest.mark.parametrize("emulate", [True, False])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("sizes", [(64, 96, 128), (51, 48, 80)], ids=str)
def test_float8_linear(recipe, dtype, emulate, sizes):
    tensors = operands(HALF[dtype], *sizes)
    right = pass_through(theirs(recipe, emulate), *tensors)
    found = pass_through(lambda x, weight: fp8.linear(x, weight, weight[:, 0].detach(), recipe), *tensors)
    tolerance = ROUNDED_ELSEWHERE.get((recipe, dtype, emulate), 0.0)
    for ours, other in zip(found, right, strict=True):
        assert (ours - other).float().norm() <= tolerance * other.float().norm()


# torchao never takes an amax to be below 1e-12 (torchao/float8/float8_utils.py): there it loses what we keep
@pytest.mark.parametrize("content", [each for each in CONTENTS if each != "subnormal"])
@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise", "rowwise_with_gw_hp"])
@pytest.mark.parametrize("sizes", [(33, 50, 80), (64, 96, 128), (1, 16, 1), (1, 1, 1)], ids=str)
def test_float8_linear_whatever_is_in_the_operands(recipe, content, sizes):
    x, weight, gradient = operands(torch.bfloat16, *sizes)
    tensors = filled(content, *x.shape).bfloat16(), weight, gradient
    right = pass_through(theirs(recipe, emulate=False), *tensors)
    found = pass_through(lambda x, weight: fp8.linear(x, weight, weight[:, 0].detach(), recipe), *tensors)
    for ours, other in zip(found, right, strict=True):
        assert_same_bits(ours, other)


MX_ELEMENTS = {
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp4_e2m1": "float4_e2m1fn_x2",
}
MX_RULES = {"floor": "FLOOR", "up": "RCEIL", "even": "EVEN"}


# A block with inf is finite in torchao, and NaN here, so that it is seen; and torchao divides by 2^-126 where
# the scale that it stores is 2^-127: subnormal numbers come back as their half
@pytest.mark.parametrize("content", [each for each in CONTENTS if each not in ("inf", "subnormal")])
@pytest.mark.parametrize("shape", [(17, 64), (1, 32)], ids=str)
@pytest.mark.parametrize("element", MX_ELEMENTS)
@pytest.mark.parametrize("rule", MX_RULES)
def test_mx_tensor_whatever_is_in_it(element, rule, shape, content):
    mx_tensor = pytest.importorskip("torchao.prototype.mx_formats.mx_tensor", exc_type=ImportError)
    mx_config = pytest.importorskip("torchao.prototype.mx_formats.config", exc_type=ImportError)
    x, mode = filled(content, *shape), getattr(mx_config.ScaleCalculationMode, MX_RULES[rule])
    made = mx_tensor.MXTensor.to_mx(x, getattr(torch, MX_ELEMENTS[element]), 32, mode)
    ours = fp8.quantize(x, fp8.Cast(FORMATS[element], (1, 32), rule, FORMATS["e8m0"]))
    assert_same_bits(ours.scales, made.scale.float().reshape(ours.scales.shape))
    assert_same_bits(ours.dequantize(), made.dequantize(torch.float32))


@pytest.mark.parametrize("sizes", [(64, 96, 128), (32, 160, 64)], ids=str)
@pytest.mark.parametrize("dtype", HALF)
def test_mxfp8_linear(dtype, sizes):
    mxfp8 = pytest.importorskip("torchao.prototype.moe_training.mxfp8_linear", exc_type=ImportError)
    common = pytest.importorskip(
        "torchao.quantization.quantize_.common.kernel_preference", exc_type=ImportError
    )
    mx_config = pytest.importorskip("torchao.prototype.mx_formats.config", exc_type=ImportError)

    def layer(x, weight):
        return mxfp8._to_mxfp8_then_scaled_mm(
            x, weight, common.KernelPreference.EMULATED, mx_config.ScaleCalculationMode.RCEIL
        )

    tensors = operands(HALF[dtype], *sizes)
    right = pass_through(layer, *tensors)
    found = pass_through(lambda x, weight: fp8.linear(x, weight, recipe="mxfp8"), *tensors)
    for ours, other in zip(found, right, strict=True):
        assert torch.equal(ours, other)


# torchao's scale of a tensor of zeros is 0, and all becomes NaN; its scales of blocks end at 2^-6
@pytest.mark.parametrize("content", ["plain", "a row of zeros", "small", "large", "inf", "nan"])
@pytest.mark.parametrize("shape", [(64, 96), (51, 48), (2, 16)], ids=str)
def test_nvfp4_tensor(content, shape):
    nvfp4 = pytest.importorskip("torchao.prototype.mx_formats.nvfp4_tensor", exc_type=ImportError)
    x = filled(content, *shape)
    tensor_scale = nvfp4.per_tensor_amax_to_scale(x.abs().amax())
    made = nvfp4.NVFP4Tensor.to_nvfp4(x, per_tensor_scale=tensor_scale)
    ours = fp8.quantize(x, fp8.RECIPES["nvfp4"].output.left)
    if x.isfinite().all():  # torchao's is infinite with an infinity, and then everything is NaN, as here
        assert torch.equal(ours.tensor_scale, tensor_scale)
    assert_same_bits(ours.dequantize(), made.dequantize(torch.float32))


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_sums_are_fast_for_the_output_alone(recipe):
    settings = config.Float8LinearConfig.from_recipe_name(recipe)
    products = ("output", "grad_input", "grad_weight")
    fast = [getattr(settings, f"gemm_config_{product}").use_fast_accum for product in products]
    assert fast == [True, False, False]


def blockwise_functions():
    """Take torchao's own references for DeepSeek's blocks out of a module that only Triton can import."""
    path = Path(torchao.__file__).parent / "prototype" / "blockwise_fp8_training" / "kernels.py"
    tree = ast.parse(path.read_text("utf-8"))
    names = {"torch_blockwise_scale_act_quant_lhs", "torch_blockwise_scale_weight_quant"}
    functions = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in names]
    assert len(functions) == len(names)
    found = {"torch": torch, "e4m3_dtype": torch.float8_e4m3fn, "EPS": 1e-12}
    exec(compile(ast.Module(functions, []), str(path), "exec"), found)
    return found


@pytest.mark.parametrize(
    ("function", "side"),
    [("torch_blockwise_scale_act_quant_lhs", "left"), ("torch_blockwise_scale_weight_quant", "right")],
)
def test_deepseeks_blocks(function, side):
    x, *_ = operands(torch.float32, 256, 384)
    values, scales = blockwise_functions()[function](x)
    ours = fp8.quantize(x, getattr(fp8.RECIPES["deepseek_v3"].output, side))
    assert torch.equal(ours.values, values.float())
    assert torch.equal(ours.scales, scales)
