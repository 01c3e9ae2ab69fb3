"""Proofs of the answers about eight bits and four."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons import formats, fp8, measure
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_E4M3, _E5M2, _E2M1 = FORMATS["fp8_e4m3"], FORMATS["fp8_e5m2"], FORMATS["fp4_e2m1"]


def eight_bits() -> None:
    """Compare what the two 8-bit formats reach, and how fine they are."""
    e4m3, e5m2, codes = _E4M3, _E5M2, torch.arange(256, dtype=torch.uint8)
    infinite = [codes.view(dtype).float().isinf().sum() for dtype in (torch.float8_e4m3fn, torch.float8_e5m2)]
    assert infinite == [0, 2]


def which_where() -> None:
    """Cast values of wide and of narrow range to both formats, with one scale and with one per block."""
    narrow = torch.randn(1, 4096)
    wide = torch.randn(1, 4096) * torch.logspace(-7, 0, 4096)  # neighbours are alike

    def cast(x: Tensor, element: formats.FloatFormat, **settings: Any) -> Tensor:
        return fp8.quantize(x, fp8.Cast(element, **settings)).dequantize()

    def zeros(element: formats.FloatFormat, **settings: Any) -> int:
        return int((cast(wide, element, **settings) == 0).sum())

    assert zeros(_E4M3) > 2 * zeros(_E5M2)
    assert zeros(_E4M3, block=(1, 32)) == 0
    errors = [formats.relative_error(cast(narrow, element), narrow) for element in (_E4M3, _E5M2)]


def scaling() -> None:
    """Cast small gradients to E5M2 without a scale and with one, multiply, and pass through fp16 before."""
    gradients, weights = torch.randn(100, 100) * 1e-6, torch.randn(100, 100)
    assert gradients.to(torch.float8_e5m2).float().count_nonzero() == 0
    cast, other = fp8.quantize(gradients, fp8.Cast(_E5M2)), fp8.quantize(weights, fp8.Cast(_E4M3))
    assert cast.values.float().abs().max() == _E5M2.max  # the largest becomes the largest number
    product = (cast.values.float() @ other.values.float()) * cast.scales * other.scales  # in higher precision
    assert formats.relative_error(product, gradients @ weights) < 0.1
    assert not (gradients / 1000).half().any()  # of 1e-9, without a loss scale
    assert (gradients / 1000).bfloat16().all()


def delayed() -> None:
    """Scale a tensor that has grown tenfold by its magnitude of the step before; gather shards in FP8."""
    count, growth = 4096, 10
    earlier, now = torch.randn(count), growth * torch.randn(count)
    stale = fp8.quantize(now, fp8.Cast(_E4M3), amax=earlier.abs().max())
    assert stale.saturated
    assert fp8.quantize(now, fp8.Cast(_E4M3)).saturated == 0

    ranks = [torch.randn(256), 5 * torch.randn(256)]
    codes = [fp8.quantize(each, fp8.Cast(_E4M3)) for each in ranks]
    added = (codes[0].values.float() + codes[1].values.float()) * codes[0].scales.squeeze()
    assert formats.relative_error(added, ranks[0] + ranks[1]) > 0.5
    assert fp8.quantize(ranks[1], fp8.Cast(_E4M3), amax=ranks[0].abs().max()).saturated  # cut off
    clipped = stale.saturated / count


def accumulator() -> None:
    """Add up long dot products of E4M3 numbers in 14 bits, with and without promotion to fp32."""
    length, bits, every = 4096, 14, 128
    register, with_promotion = fp8.Accumulation(bits), fp8.Accumulation(bits, every)
    positive, any_sign = fp8.long_sums(length, positive=True), fp8.long_sums(length)
    narrow, promoted = (positive.errors(each)[-1] for each in (register, with_promotion))
    assert narrow > 5 * promoted
    assert narrow > 10 * any_sign.errors(register)[-1]  # positive values show it most
    sums = fp8.accumulate(positive.left, positive.right, register)
    assert (sums < positive.exact[-1]).all()  # towards zero


def memory() -> None:
    """Weigh the training of a layer in FP8, and what it keeps of its input."""
    layer = nn.Sequential(nn.Linear(512, 512, bias=False))
    converted = fp8.convert(copy.deepcopy(layer), "tensorwise", keep=())
    converted(torch.randn(4, 512)).square().mean().backward()
    (weight,) = converted.parameters()
    assert weight.grad is not None
    state = measure.optimizer_bytes(torch.optim.AdamW, [weight]).state
    inputs = torch.randn(32, 512)
    kept = [sum(measure.saved_activation_bytes(each, inputs).values()) for each in (layer, converted)]
    assert kept[0] == kept[1]  # where the layer saves what came in, and not its FP8 copy
    sent = fp8.RECIPES["deepseek_v3"].output
    assert sent is not None
    _, block = sent.left.block
    assert block is not None
    share = (1 + 4 / block) / 2
    per_parameter = (weight.nbytes + weight.grad.nbytes + state) / weight.numel()
    inference = torch.float8_e4m3fn.itemsize / torch.bfloat16.itemsize


def granularity() -> None:
    """Quantise a tensor with one outlier to E2M1, with scales per tensor, row and block; tokens by tiles."""
    outlier, block, tensor = 1000, 16, torch.randn(64, 512)
    tensor[3, 5] = outlier
    casts = {name: fp8.quantize(tensor, cast) for name, cast in fp8.granularities(_E2M1).items()}
    lost = {name: (each.underflowed or 0) / tensor.numel() for name, each in casts.items()}
    assert lost["tensor"] > 0.99
    assert lost[f"1 × {block}"] < lost["row"] < 0.3
    bits = 8 * casts[f"1 × {block}"].bytes_of_scales / tensor.numel()
    by_row = fp8.quantize(tensor, fp8.granularities(_E4M3)["row"])
    assert (by_row.underflowed or 0) < 0.001 * tensor.numel()  # in eight bits a row is enough here

    tile, tokens = 128, torch.randn(128, 256)
    tokens[7] *= 100_000
    others = torch.arange(tile) != 7
    square, row = (fp8.quantize(tokens, fp8.Cast(_E4M3, (n, tile))).dequantize()[others] for n in (tile, 1))
    assert (square - tokens[others]).norm() > 3 * (row - tokens[others]).norm()


def block_formats() -> None:
    """Quantise the same tensor to MXFP8, MXFP4 and NVFP4; train a layer in NVFP4 with one side in full."""
    tensor = torch.randn(256, 1024)
    names = ("mxfp8_e4m3", "mxfp4", "nvfp4")
    bits = [BLOCK_FORMATS[name].quantize(tensor).bits_per_element for name in names]
    _, mx_block, nv_block = (BLOCK_FORMATS[name].block_size for name in names)
    plain, inputs = nn.Sequential(nn.Linear(256, 256, bias=False)), torch.randn(64, 256)
    recipe = fp8.RECIPES["nvfp4"]

    def off(recipe: fp8.Recipe) -> float:
        output = fp8.convert(copy.deepcopy(plain), recipe, keep=())(inputs)
        return formats.relative_error(output, plain(inputs))

    assert off(replace(recipe, input_gradient=None, weight_gradient=None)) > 0.05  # the loss itself is off
    assert off(replace(recipe, output=None)) == 0


def transposed() -> None:
    """Quantise a matrix along its rows, and then along its columns."""
    matrix = torch.randn(64, 64)
    cast = fp8.Cast(_E2M1, (1, 16), scale=_E4M3, has_tensor_scale=True)  # NVFP4

    def along_columns(x: Tensor) -> Tensor:
        return fp8.quantize(x.t().contiguous(), cast).dequantize().t()

    once, twice = (
        formats.relative_error(along_columns(x), matrix)
        for x in (matrix, fp8.quantize(matrix, cast).dequantize())
    )
    assert twice > once
    squares = fp8.quantize(matrix, replace(cast, block=(16, 16)))
    assert torch.equal(squares.transposed().dequantize(), squares.dequantize().t())  # the same numbers


def stochastic() -> None:
    """Round gradients below half a step of E2M1, to nearest and at random."""
    value, smallest = 0.2, _E2M1.smallest_subnormal
    values, draw = torch.randn(100_000), torch.Generator().manual_seed(0)
    steady = torch.full((100_000,), value)
    assert _E2M1.quantize(steady).count_nonzero() == 0
    random = _E2M1.round_stochastically(steady, draw)
    assert abs(random.mean() - value) < 0.005
    assert random.square().mean() > 2 * value**2  # behind a nonlinear function the mean is wrong
    nearest, drawn = (
        formats.relative_error(rounded, values)
        for rounded in (_E2M1.quantize(values), _E2M1.round_stochastically(values, draw))
    )


def shared_exponent() -> None:
    """Choose a block's power-of-two scale by three rules, for the worst largest value."""

    def worst(rule: str) -> float:
        """Return what a block's largest can lose."""
        blocks = torch.zeros(512, 32)
        blocks[:, 0] = torch.linspace(1, 2, 513)[1:] * _E4M3.max
        back = fp8.quantize(blocks, fp8.Cast(_E4M3, (1, 32), rule, FORMATS["e8m0"])).dequantize()
        return (1 - back[:, 0] / blocks[:, 0]).max().item()

    nearest, floor, up = worst("nearest"), worst("floor"), worst("up")
    assert nearest > floor > up


def speed() -> None:
    """Halve the time of the products, add that of the casts, and see what is left of the step."""
    sheet = measure.GPUS["H100 SXM"].flop_per_s
    factor = sheet["fp8_e4m3"] / sheet["bf16"]

    def step(share: float, casts: float) -> float:
        return 1 / (1 - share + share / factor + casts)

    (large_share, few), (less, more) = (0.6, 0.1), (0.3, 0.2)
    typical, small = step(large_share, few), step(less, more)
    assert small < 1 < typical
