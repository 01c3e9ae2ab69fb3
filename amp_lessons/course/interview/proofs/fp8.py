"""Proofs of the answers about eight bits and four."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import nn

from amp_lessons import formats, fp8, measure
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_E4M3, _E5M2, _E2M1 = FORMATS["fp8_e4m3"], FORMATS["fp8_e5m2"], FORMATS["fp4_e2m1"]


def eight_bits() -> dict[str, object]:
    """Compare what the two 8-bit formats reach, and how fine they are."""
    dtypes = {_E4M3: torch.float8_e4m3fn, _E5M2: torch.float8_e5m2}
    for name, dtype in dtypes.items():
        assert name.max == torch.finfo(dtype).max
        assert name.epsilon == 2**-name.mantissa_bits == torch.finfo(dtype).eps
        assert name.exponent_bits + name.mantissa_bits == 7  # and a sign
    codes = torch.arange(256, dtype=torch.uint8)
    infinite, nan = (
        {element: mask(codes.view(dtype).float()).sum().item() for element, dtype in dtypes.items()}
        for mask in (torch.isinf, torch.isnan)
    )
    assert (infinite[_E4M3], infinite[_E5M2]) == (0, 2)
    assert (nan[_E4M3], nan[_E5M2]) == (2, 6)  # one mantissa, or all three that are not zero, as in fp16
    other = torch.finfo(torch.float8_e4m3fnuz).max
    assert other < _E4M3.max
    assert (codes.view(torch.float8_e4m3fnuz).float() != codes.view(torch.float8_e4m3fn).float()).sum() > 250
    return {
        "other": f"{other:g}",
        "e4m3": f"{_E4M3.max:g}",
        "e5m2": f"{_E5M2.max:g}",
        "e4m3_step": f"{_E4M3.epsilon:.1%}",
        "e5m2_step": f"{_E5M2.epsilon:.1%}",
    }


def which_where() -> dict[str, object]:
    """Read torchao's tensorwise recipe, and cast values of wide and of narrow range to both formats."""
    recipe = fp8.RECIPES["tensorwise"]
    assert recipe.output is not None
    assert recipe.input_gradient is not None
    assert (recipe.output.left.element, recipe.output.right.element) == (_E4M3, _E4M3)
    assert recipe.input_gradient.left.element == _E5M2

    narrow = torch.randn(1, 4096)
    wide = torch.randn(1, 4096) * torch.logspace(-7, 0, 4096)  # neighbours are alike
    mixed = wide[:, torch.randperm(4096)]  # and here they are not

    def error(x: torch.Tensor, element: formats.FloatFormat, cast: fp8.Cast) -> float:
        return formats.relative_error(fp8.quantize(x, replace(cast, element=element)).dequantize(), x)

    def zeros(x: torch.Tensor, element: formats.FloatFormat, cast: fp8.Cast) -> float:
        small = fp8.quantize(x, replace(cast, element=element)).dequantize()
        return (small == 0).float().mean().item()

    one, blocks = fp8.Cast(), fp8.Cast(block=(1, 32))
    assert error(narrow, _E4M3, one) < 0.6 * error(narrow, _E5M2, one)
    lost4, lost5 = (zeros(wide, element, one) for element in (_E4M3, _E5M2))
    assert lost4 > 2 * lost5
    assert zeros(wide, _E4M3, blocks) == 0
    assert 0 < zeros(mixed, _E4M3, blocks) < 0.8 * lost4
    assert all(error(x, _E4M3, blocks) < 0.6 * error(x, _E5M2, blocks) for x in (wide, mixed, narrow))
    for each in (fp8.RECIPES["mxfp8"].output, fp8.RECIPES["mxfp8"].input_gradient):
        assert each is not None
        assert {each.left.element, each.right.element} == {_E4M3}
    return {
        "e4m3": f"{error(narrow, _E4M3, one):.1%}",
        "e5m2": f"{error(narrow, _E5M2, one):.1%}",
    }


def scaling() -> dict[str, object]:
    """Cast small gradients to E5M2 without a scale and with one, multiply, and cast a tensor of zeros."""
    gradients = torch.randn(100, 100) * 1e-6
    assert gradients.to(torch.float8_e5m2).float().count_nonzero() == 0
    cast = fp8.quantize(gradients, fp8.Cast(_E5M2))
    lost = (cast.values == 0).float().mean().item()
    assert lost < 1e-3
    amax = gradients.abs().max()
    assert cast.values.float().abs().max() == _E5M2.max  # the largest becomes the largest number
    assert torch.isclose(cast.scales.squeeze() * _E5M2.max, amax)
    assert not cast.scales.log2().frac().eq(0).any()  # no power of two
    weights = torch.randn(100, 100)
    other = fp8.quantize(weights, fp8.Cast(_E4M3))
    product = (cast.values.float() @ other.values.float()) * cast.scales * other.scales  # in higher precision
    assert formats.relative_error(product, gradients @ weights) < 0.1

    def kept(dtype: torch.dtype) -> bool:
        """Return whether gradients of 1e-9 come through a format on their way to FP8."""
        return bool(fp8.quantize((gradients / 1000).to(dtype).float(), fp8.Cast(_E5M2)).values.float().any())

    assert not kept(torch.float16)  # without a loss scale
    assert kept(torch.bfloat16)
    # Scaled in bf16 values are rounded twice; a scale of another tensor needs a clamp before the cast
    scale = _E4M3.max / weights.abs().max()
    twice = (weights.bfloat16() * scale.bfloat16()).float().to(torch.float8_e4m3fn).float() / scale
    assert (twice - weights).norm() > 1.001 * (
        (weights * scale).to(torch.float8_e4m3fn).float() / scale - weights
    ).norm()
    assert (weights * scale).abs().max() <= (1 + 1e-6) * _E4M3.max < (3 * weights * scale).abs().max()
    nothing = fp8.quantize(torch.zeros(16), fp8.Cast(_E5M2)).dequantize()
    assert (nothing == 0).all()  # amax 0 must not become a division by zero
    return {}


def delayed() -> dict[str, object]:
    """Scale a tensor that has grown tenfold by its magnitude of the step before, and by its own."""
    assert fp8.RECIPES["delayed"].amax_history == 1024
    earlier, now = torch.randn(4096), 10 * torch.randn(4096)
    current = fp8.quantize(now, fp8.Cast(_E4M3))
    stale = fp8.quantize(now, fp8.Cast(_E4M3), amax=earlier.abs().max())
    right = formats.relative_error(current.dequantize(), now)
    wrong = formats.relative_error(stale.dequantize(), now)
    assert current.saturated == 0
    assert stale.saturated
    assert wrong > 5 * right

    # Codes of two ranks: added, each with the scale of its own, or gathered under one
    ranks = [torch.randn(256), 5 * torch.randn(256)]
    own = [fp8.quantize(each, fp8.Cast(_E4M3)) for each in ranks]
    added = (own[0].values.float() + own[1].values.float()) * own[0].scales.squeeze()
    assert formats.relative_error(added, ranks[0] + ranks[1]) > 0.5
    unscaled = own[0].dequantize() + own[1].dequantize()  # as outputs are, before ranks add them
    assert formats.relative_error(unscaled, ranks[0] + ranks[1]) < 0.1
    largest = torch.stack([each.abs().max() for each in ranks]).max()
    together, cut = (fp8.quantize(ranks[1], fp8.Cast(_E4M3), amax=a) for a in (largest, ranks[0].abs().max()))
    assert not together.saturated
    assert cut.saturated
    whole = fp8.quantize(torch.cat(ranks), fp8.Cast(_E4M3)).dequantize()
    assert torch.equal(whole[256:], together.dequantize())

    layer, inputs = fp8.convert(nn.Sequential(nn.Linear(32, 32)), "delayed", keep=()), torch.randn(4, 32)
    without = copy.deepcopy(layer)
    for _ in range(2):  # what the first step sees is in force in the second
        layer(inputs).sum().backward()
    history = layer.state_dict()["0.history.amax"].clone()
    layer.eval()(100 * inputs)
    assert torch.equal(layer.state_dict()["0.history.amax"], history)  # evaluation writes nothing
    assert not torch.equal(layer.train()(100 * inputs), without(100 * inputs))  # the same weights
    assert not torch.equal(layer.state_dict()["0.history.amax"], history)
    return {
        "history": fp8.RECIPES["delayed"].amax_history,
        "growth": 10,
        "clipped": f"{stale.saturated / 4096:.0%}",
    }


def accumulator() -> dict[str, object]:
    """Add up long dot products of E4M3 numbers in 14 bits, with and without promotion to fp32."""
    register, with_promotion, exact = (
        fp8.Accumulation(bits, every) for bits, every in ((14, None), (14, 128), (None, None))
    )
    positive, any_sign = fp8.long_sums(4096, positive=True), fp8.long_sums(4096)
    narrow, promoted, wide = (positive.errors(each)[-1] for each in (register, with_promotion, exact))
    assert fp8.RECIPES["deepseek_v3"].accumulation == fp8.Accumulation(14, 128)
    assert narrow > 5 * promoted > wide
    sums = fp8.accumulate(positive.left, positive.right, register)
    assert (sums < positive.exact[-1]).all()  # always towards zero
    assert narrow > 10 * any_sign.errors(register)[-1]  # positive values show it most
    assert narrow > 10 * positive.errors(register)[positive.lengths.index(256)]  # and long sums
    assert "use_fast_accum=False" in str(torch.ops.aten._scaled_mm.default._schema)
    return {
        "length": positive.lengths[-1],
        "bits": 14,
        "narrow": f"{narrow:.1%}",
        "every": 128,
        "promoted": f"{promoted:.2%}",
    }


def memory() -> dict[str, object]:
    """Predict the memory of a layer's training in bf16, and look at what its FP8 version keeps."""
    layer = nn.Sequential(nn.Linear(512, 512, bias=False))
    converted = fp8.convert(nn.Sequential(nn.Linear(512, 512, bias=False)), "tensorwise", keep=())
    weights = [p.dtype for p in converted.parameters()]
    assert weights == [torch.float32]
    converted(torch.randn(4, 512)).square().mean().backward()
    assert next(converted.parameters()).grad.dtype == torch.float32  # type: ignore[union-attr]
    state = measure.optimizer_bytes(torch.optim.AdamW, list(converted.parameters())).state
    before = measure.optimizer_bytes(torch.optim.AdamW, list(layer.parameters())).state
    assert state == before
    per_parameter = (state / 512**2) + 4 + 4
    inputs = torch.randn(32, 512)
    kept = [sum(measure.saved_activation_bytes(each, inputs).values()) for each in (layer, converted)]
    assert kept[0] == kept[1]  # where the layer saves what came in, and not its FP8 copy
    sent = fp8.RECIPES["deepseek_v3"].output
    assert sent is not None
    _, block = sent.left.block
    tile = fp8.quantize(torch.randn(16, 512), sent.left)
    share = (1 + tile.scales.numel() * 4 / (16 * 512)) / 2  # with scales in fp32, of what bf16 takes
    assert 0.5 < share < 0.53
    return {
        "block": block,
        "share": f"{share:.0%}",
        "per_parameter": f"{per_parameter:g}",
        "copy": torch.float8_e4m3fn.itemsize,
        "inference": f"{torch.float8_e4m3fn.itemsize / torch.bfloat16.itemsize:.0%}",
    }


def granularity() -> dict[str, object]:
    """Quantise a tensor with one outlier to E2M1, with scales per tensor, row and block."""
    tensor = torch.randn(64, 512)
    tensor[3, 5] = 1000.0
    lost, cost = {}, {}
    for name, cast in fp8.granularities(_E2M1).items():
        small = fp8.quantize(tensor, cast)
        assert small.underflowed is not None
        lost[name] = small.underflowed / tensor.numel()
        cost[name] = 8 * small.bytes_of_scales / tensor.numel()
    assert lost["tensor"] > 0.99
    assert lost["row"] < 0.3
    assert lost["1 × 16"] < lost["row"]
    assert cost["tensor"] < cost["row"] < cost["1 × 16"] < 1
    by_row = fp8.quantize(tensor, fp8.granularities(_E4M3)["row"])
    assert by_row.underflowed is not None
    assert by_row.underflowed < 0.001 * tensor.numel()  # in eight bits a row is enough here

    def tiled(t: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        """Round to E4M3 with a scale for each tile."""
        tiles = t.unflatten(0, (-1, rows)).unflatten(2, (-1, columns))
        scale = tiles.abs().amax((1, 3), keepdim=True) / _E4M3.max
        return ((tiles / scale).to(torch.float8_e4m3fn).float() * scale).reshape(t.shape)

    tile = 128
    tokens, weight = torch.randn(tile, 2 * tile), torch.randn(2 * tile, tile)
    loud = 100_000
    tokens[7] *= loud
    others = torch.arange(tile) != 7
    square, row = (formats.relative_error(tiled(tokens, n, tile)[others], tokens[others]) for n in (tile, 1))
    assert square > 3 * row
    even = [formats.relative_error(tiled(weight, n, tile), weight) for n in (tile, 1)]
    assert even[0] < 1.2 * even[1]  # weights have no such rows
    assert torch.equal(tiled(weight, tile, tile).T, tiled(weight.T.contiguous(), tile, tile))
    assert not torch.equal(tiled(tokens, 1, tile).T, tiled(tokens.T.contiguous(), 1, tile))
    return {
        "tile": tile,
        "outlier": 1000,
        "tensor": f"{lost['tensor']:.0%}",
        "bits": f"{cost['1 × 16']:.1f}",
    }


def block_formats() -> dict[str, object]:
    """Quantise the same tensor to MXFP8, MXFP4 and NVFP4: bits per element, scales and errors."""
    tensor = torch.randn(256, 1024)
    found = {
        name: formats.scaling_error(tensor, BLOCK_FORMATS[name]) for name in ("mxfp8_e4m3", "mxfp4", "nvfp4")
    }
    assert BLOCK_FORMATS["mxfp4"].block_size == 32
    assert BLOCK_FORMATS["nvfp4"].block_size == 16
    assert BLOCK_FORMATS["mxfp4"].scale == FORMATS["e8m0"]
    assert BLOCK_FORMATS["nvfp4"].scale == _E4M3
    assert found["nvfp4"].relative_error < found["mxfp4"].relative_error
    scales = torch.linspace(1, 2, 101)
    off_e4m3, off_power = (
        ((f.quantize(scales) - scales) / scales).abs().max() for f in (_E4M3, FORMATS["e8m0"])
    )
    assert off_e4m3 < 2**-4 < 0.25 < off_power  # nearly exact, and up to a third off

    # What lies elsewhere in a tensor: MX's scale of a block does not ask, NVFP4's does, by that of the tensor
    louder = tensor.clone()
    louder[-1, -1] = 1e4
    for name, alone in (("mxfp8", True), ("nvfp4", False)):
        product = fp8.RECIPES[name].output
        assert product is not None
        scales_of_both = [fp8.quantize(each, product.left).scales.flatten()[0] for each in (tensor, louder)]
        assert torch.equal(*scales_of_both) == alone

    def extras(name: str) -> tuple[bool, bool]:
        recipe = fp8.RECIPES[name]
        gradients = [each for each in (recipe.input_gradient, recipe.weight_gradient) if each]
        return any(each.left.stochastic for each in gradients), any(each.hadamard for each in gradients)

    assert extras("nvfp4") == (True, True)
    assert extras("mxfp8") == (False, False)
    assert BLOCK_FORMATS["nvfp4"].has_tensor_scale  # for E4M3's range is short
    assert _E4M3.max / _E4M3.smallest_normal < 2**15
    stored = torch.zeros(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)  # a shape of bytes, not of codes
    assert stored.nbytes == stored.numel() == 8
    assert 2 * FORMATS["fp4_e2m1"].bits == 8
    for compute in (torch.add, torch.mul):
        try:
            compute(stored, stored)
        except (NotImplementedError, RuntimeError):
            continue
        raise AssertionError(compute)
    plain, inputs = nn.Sequential(nn.Linear(256, 256, bias=False)), torch.randn(64, 256)

    def off(recipe: fp8.Recipe) -> float:
        output = fp8.convert(copy.deepcopy(plain), recipe, keep=())(inputs)
        return ((output - plain(inputs)).norm() / plain(inputs).norm()).item()

    recipe = fp8.RECIPES["nvfp4"]
    forward_off = off(replace(recipe, input_gradient=None, weight_gradient=None))  # backward in full
    assert forward_off == off(recipe) > 0.05
    assert off(replace(recipe, output=None)) == 0  # forward in full
    assert recipe.output is not None
    assert not recipe.output.left.stochastic  # as gradients are
    return {
        "mx_block": 32,
        "nv_block": 16,
        "mxfp8_bits": f"{found['mxfp8_e4m3'].bits_per_element:.2f}",
        "mx_bits": f"{found['mxfp4'].bits_per_element:.2f}",
        "nv_bits": f"{found['nvfp4'].bits_per_element:.1f}",
    }


def transposed() -> dict[str, object]:
    """Quantise a matrix along its rows and along its columns: the results are different numbers."""
    matrix = torch.randn(64, 64)
    cast = fp8.Cast(_E2M1, (1, 16), scale=_E4M3, has_tensor_scale=True)  # NVFP4
    along_rows = fp8.quantize(matrix, cast)
    along_columns = fp8.quantize(matrix.t().contiguous(), cast).dequantize().t()
    different = (along_rows.dequantize() != along_columns).float().mean().item()
    assert different > 0.01
    twice = fp8.quantize(along_rows.dequantize().t().contiguous(), cast).dequantize().t()

    def error(x: torch.Tensor) -> float:
        return formats.relative_error(x, matrix)

    assert error(twice) > error(along_columns)
    try:
        refused = ""
        along_rows.transposed()
    except ValueError as raised:
        refused = str(raised)
    assert "cast its transpose" in refused
    for serves_both in (replace(cast, block=(16, 16)), fp8.granularities(_E2M1)["tensor"]):
        forward = fp8.quantize(matrix, serves_both)
        assert torch.equal(forward.transposed().dequantize(), forward.dequantize().t())  # the same numbers
    return {
        "once": f"{error(along_columns):.1%}",
        "twice": f"{error(twice):.1%}",
    }


def stochastic() -> dict[str, object]:
    """Round gradients below half a step of E2M1, to nearest and at random."""
    steady = torch.full((100_000,), 0.2)  # the smallest number above 0 is 0.5
    assert _E2M1.quantize(steady).count_nonzero() == 0
    draw = torch.Generator().manual_seed(0)
    random = _E2M1.round_stochastically(steady, draw)
    assert set(random.tolist()) == {0.0, 0.5}
    assert abs(random.mean() - 0.2) < 0.005
    assert abs(random.square().mean() - 0.4 * 0.5**2) < 0.005  # behind a nonlinear function the mean is wrong
    assert 0.4 * 0.5**2 > 2 * 0.2**2
    values = torch.randn(100_000)

    def error(rounded: torch.Tensor) -> float:
        return formats.relative_error(rounded, values)

    nearest, drawn = error(_E2M1.quantize(values)), error(_E2M1.round_stochastically(values, draw))
    assert drawn > 1.2 * nearest
    recipe, in_eight_bits = fp8.RECIPES["nvfp4"], fp8.RECIPES["mxfp8"].input_gradient
    assert recipe.input_gradient is not None
    assert recipe.output is not None
    assert recipe.input_gradient.left.stochastic
    assert not recipe.output.left.stochastic
    assert in_eight_bits is not None
    assert not in_eight_bits.left.stochastic
    assert abs(_E4M3.quantize(steady[:1]) / 0.2 - 1) < 2**-4  # where E2M1 loses all of it
    return {
        "value": 0.2,
        "smallest": f"{_E2M1.smallest_subnormal:g}",
        "nearest": f"{nearest:.0%}",
        "drawn": f"{drawn:.0%}",
    }


def shared_exponent() -> dict[str, object]:
    """Choose a block's power-of-two scale by three rules, for the worst largest value and for normal ones."""
    normal = torch.randn(256, 1024)

    def worst_and_usual(rule: str) -> tuple[float, float, int]:
        """Return what a block's largest can lose, the error on normal values, and how many are clipped."""
        cast = fp8.Cast(_E4M3, (1, 32), rule, FORMATS["e8m0"])
        blocks = torch.zeros(512, 32)
        blocks[:, 0] = torch.linspace(1, 2, 513)[1:] * _E4M3.max
        back, usual = fp8.quantize(blocks, cast).dequantize()[:, 0], fp8.quantize(normal, cast)
        error = formats.relative_error(usual.dequantize(), normal)
        return (1 - back / blocks[:, 0]).max().item(), error, usual.saturated or 0

    nearest, nearest_usual, nearest_clipped = worst_and_usual("nearest")
    floor, floor_usual, floor_clipped = worst_and_usual("floor")
    up, up_usual, up_clipped = worst_and_usual("up")
    assert math.isclose(nearest, 1 - 2**-0.5, rel_tol=0.01)
    assert math.isclose(floor, 1 - 448 / 512, rel_tol=0.02)
    assert up <= 2**-4  # half a step of three bits: ordinary rounding
    assert nearest_clipped > floor_clipped > up_clipped == 0
    assert up_usual < floor_usual < 1.2 * up_usual < nearest_usual
    assert fp8.RECIPES["mxfp8"].output.left.rule == "up"  # type: ignore[union-attr]
    return {
        "nearest": f"{nearest:.0%}",
        "floor": f"{floor:.1%}",
        "up": f"{up:.0%}",
    }


def speed() -> dict[str, object]:
    """Halve the time of the products, add that of the casts, and see what is left of the step."""
    sheet = measure.GPUS["H100 SXM"].flop_per_s
    factor = sheet["fp8_e4m3"] / sheet["bf16"]
    assert abs(factor / (1979 / 989) - 1) < 0.01  # its data sheet, dense

    def step(share: float, casts: float) -> float:
        return 1 / (1 - share + share / factor + casts)

    typical, small = step(0.6, 0.1), step(0.3, 0.2)
    assert math.isclose(typical, 10 / (4 + 3 + 1), rel_tol=0.01)
    assert math.isclose(small, 20 / (14 + 3 + 4), rel_tol=0.01)
    assert small < 1
    model = nn.Sequential(nn.Embedding(16, 32), nn.LayerNorm(32), nn.Linear(32, 32), nn.Linear(32, 16))
    converted = fp8.convert(model, "tensorwise", keep=("3",))  # the head
    assert [type(each) is fp8.ScaledLinear for each in converted] == [False, False, True, False]
    return {
        "factor": f"{factor:.0f}",
        "share": "60 %",
        "casts": "10 %",
        "typical": f"{typical:.2f}",
        "less": "30 %",
        "more": "20 %",
        "small": f"{small:.2f}",
    }
