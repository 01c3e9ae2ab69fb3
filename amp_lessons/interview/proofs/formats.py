"""Proofs of the answers about number formats."""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons import autocast, formats
from amp_lessons.formats import FORMATS

_ASK = """
import json, torch
backends = torch.backends
print(json.dumps({
    "products": backends.cuda.matmul.allow_tf32, "convolutions": backends.cudnn.allow_tf32,
    "fp16": backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "bf16": backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
}))
"""


@functools.cache
def _defaults() -> dict[str, bool]:
    """Ask a fresh process for PyTorch's switches: in this one somebody may have changed them."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def fields() -> dict[str, object]:
    """Take the two 16-bit formats apart."""
    fp16, bf16, fp32 = (FORMATS[name] for name in ("fp16", "bf16", "fp32"))
    assert fp16.bits == bf16.bits == 16
    assert bf16.exponent_bits == fp32.exponent_bits
    assert fp16.max == torch.finfo(torch.float16).max
    assert bf16.max == torch.finfo(torch.bfloat16).max
    return {
        "fp16": f"{fp16.exponent_bits} and {fp16.mantissa_bits}",
        "bf16": f"{bf16.exponent_bits} and {bf16.mantissa_bits}",
        "fp16_max": f"{fp16.max:.0f}",
        "bf16_max": f"{bf16.max:.1e}",
        "fp16_digits": f"{fp16.decimal_digits:.1f}",
        "bf16_digits": f"{bf16.decimal_digits:.1f}",
    }


def fp16_or_bf16() -> dict[str, object]:
    """Round the same values to both: where they fit fp16 is nearer, where they do not it is lost."""
    values = torch.randn(10_000)

    def error(x: Tensor, dtype: torch.dtype) -> float:
        return formats.relative_error(x.to(dtype).float(), x)

    ratio = error(values, torch.bfloat16) / error(values, torch.float16)
    assert 7 < ratio < 9  # three bits more: a factor of eight
    assert (values * 1e-10).half().count_nonzero() == 0
    assert (values * 1e6).half().isinf().float().mean() > 0.9
    assert error(values * 1e-10, torch.bfloat16) < 0.01
    assert error(values * 1e6, torch.bfloat16) < 0.01
    return {"ratio": f"{ratio:.0f}"}


def masters() -> dict[str, object]:
    """Make a thousand small updates of a weight, in bf16 and with an fp32 master."""
    update, steps = 1e-3, 1000
    weight = formats.repeated_update(update, FORMATS["bf16"], steps)
    assert weight["plain"][-1] == 1.0  # it has not moved
    assert weight["fp32_copy"][-1] == 2.0
    half_spacing = FORMATS["bf16"].spacing(1.0) / 2
    assert update < half_spacing
    half_below, one = half_spacing / 2, torch.ones((), dtype=torch.bfloat16)
    between = (half_below + half_spacing) / 2  # lost when it is added to one, and not when it is taken away
    assert one + between == 1
    assert one - between < 1
    assert one - 0.99 * half_below == 1
    return {
        "update": update,
        "steps": steps,
        "half_spacing": f"{half_spacing:.4f}",
        "half_below": f"{half_below:.4f}",
        "plain": weight["plain"][-1],
        "master": weight["fp32_copy"][-1],
    }


def subnormals() -> dict[str, object]:
    """Count the significant bits that fp16 has left for smaller and smaller numbers."""
    fp16 = FORMATS["fp16"]

    def worst_error(size: float) -> float:
        values = torch.linspace(size, 2 * size, 1001)[:-1]
        return ((values.half().float() - values) / values).abs().max().item()

    fading = [worst_error(2.0**power) for power in range(-14, -24, -1)]
    assert fading == sorted(fading)  # bit by bit, and not at an edge
    normal, deep = fading[0], fading[-1]
    assert fp16.smallest_normal == 2.0**-14
    assert fp16.smallest_subnormal == 2.0**-24
    assert normal <= 2**-11
    assert deep > 0.15
    return {
        "normal": f"{fp16.smallest_normal:.1e}",
        "last": f"{fp16.smallest_subnormal:.0e}",
        "normal_error": f"{normal:.2%}",
        "deep_error": f"{deep:.0%}",
        "at": f"{2.0**-23:.0e}",
    }


def tf32() -> dict[str, object]:
    """Ask for TF32's fields, and a fresh PyTorch for its switches."""
    tf32, fp32, fp16 = FORMATS["tf32"], FORMATS["fp32"], FORMATS["fp16"]
    assert tf32.exponent_bits == fp32.exponent_bits
    assert tf32.mantissa_bits == fp16.mantissa_bits
    switches = _defaults()
    assert switches["convolutions"]
    assert not switches["products"]
    return {"exponent": tf32.exponent_bits, "mantissa": tf32.mantissa_bits, "bytes": torch.float32.itemsize}


def stagnation() -> dict[str, object]:
    """Count in 16 bits by adding one."""
    ones = torch.ones(5000)
    counted = {name: formats.running_sum(ones, FORMATS[name])[-1].item() for name in ("bf16", "fp16")}
    assert counted == {"bf16": 2.0**8, "fp16": 2.0**11}
    total = torch.tensor(counted["bf16"], dtype=torch.bfloat16)
    assert total + 1 == total
    assert ones.bfloat16().sum(dtype=torch.float32) == 5000
    return {"steps": 5000, "bf16": f"{counted['bf16']:.0f}", "fp16": f"{counted['fp16']:.0f}"}


def kahan_or_stochastic() -> dict[str, object]:
    """Add small updates to bf16 weights: with a compensation, and with random rounding."""
    updates = torch.full((1000, 200), 1e-3)
    draw = torch.Generator().manual_seed(0)

    def final(method: str) -> Tensor:
        return formats.running_sum(updates, FORMATS["bf16"], method, start=1.0, generator=draw)[-1]

    plain, kahan, random = final("plain"), final("kahan"), final("stochastic")
    assert (plain == 1).all()
    assert (kahan == 2).all()
    master = torch.randn(1000, generator=draw)
    upper, lower = (master.view(torch.int32) >> 16).to(torch.int16), master.view(torch.int32).to(torch.int16)
    assert (upper.view(torch.bfloat16).float() - master).abs().max() < FORMATS["bf16"].spacing(4.0)
    assert torch.equal((upper.int() << 16 | lower.int() & 0xFFFF).view(torch.float32), master)
    assert abs(random.mean() - 2) < 0.02  # right on average
    assert random.std() > 0.02  # and noisy, one by one
    return {
        "extra": torch.bfloat16.itemsize,
        "kahan": kahan[0].item(),
        "plain": plain[0].item(),
        "mean": f"{random.mean():.2f}",
        "spread": f"{random.std():.2f}",
    }


def accumulate() -> dict[str, object]:
    """Multiply bf16 matrices with sums kept in fp32, and with sums kept in bf16."""
    length = 4096
    a, b = torch.rand(4, length), torch.rand(length, 4)
    bf16, fp32 = FORMATS["bf16"], FORMATS["fp32"]
    exact = bf16.quantize(a).double() @ bf16.quantize(b).double()
    wide = formats.relative_error(formats.product(a, b, bf16, fp32), exact)
    narrow = formats.relative_error(formats.product(a, b, bf16, bf16), exact)
    assert wide < 1e-5
    assert narrow > 0.1
    assert _defaults()["bf16"]  # partial sums of a split product may be rounded, unless one says no
    return {"length": length, "wide": "1e-5", "narrow": f"{narrow:.0%}"}


def positions() -> dict[str, object]:
    """Number the tokens of a sequence in 16 bits."""
    numbers = torch.arange(8192)

    def different(dtype: torch.dtype) -> int:
        return len(numbers.to(dtype).unique())

    bf16, fp16 = FORMATS["bf16"], FORMATS["fp16"]
    first_lost = {
        f.name: next(n for n in range(1, 5000) if f.quantize(torch.tensor(float(n))) != n)
        for f in (bf16, fp16)
    }
    assert first_lost == {"bf16": 257, "fp16": 2049}
    assert different(torch.float32) == len(numbers)
    phase = (numbers.bfloat16().float() - numbers).abs().max().item()
    assert phase > math.pi  # the fastest angle of a rotary embedding is the position itself
    return {
        "bf16_exact": first_lost["bf16"] - 1,
        "fp16_exact": first_lost["fp16"] - 1,
        "tokens": len(numbers),
        "different": different(torch.bfloat16),
        "phase": f"{phase:.0f}",
    }


def norm_overflow() -> dict[str, object]:
    """Take the root of a mean of squares in fp16, by hand and by PyTorch's own norm."""
    values = torch.full((10,), 300.0).half()
    by_hand = values.pow(2).mean().sqrt()
    assert by_hand.isinf()
    assert torch.rms_norm(values, (10,)).isfinite().all()
    assert (values.float().pow(2).mean().sqrt() - 300).abs() < 1e-3

    limit = math.sqrt(torch.finfo(torch.float16).max)
    below, above = torch.tensor([0.99 * limit, 1.01 * limit]).half() ** 2
    assert below.isfinite()
    assert above.isinf()

    listed = {name.partition(".")[0] for name in autocast.policy("cuda")}
    assert {"aten::pow", "aten::sum", "aten::rms_norm", "aten::layer_norm"} <= listed
    assert not {"aten::mul", "aten::mean"} & listed
    return {"value": 300, "square": 300**2, "largest": "65504", "limit": f"{limit:.0f}"}


def softmax() -> dict[str, object]:
    """Take a softmax in fp16 with and without subtracting the largest logit, and of a row of -inf."""
    logits = torch.tensor([12.0, 11.0, 1.0]).half()
    largest_exponent = math.log(torch.finfo(torch.float16).max)
    below, above = torch.tensor([0.99 * largest_exponent, 1.01 * largest_exponent]).half().exp()
    assert below.isfinite()
    assert above.isinf()
    naive = logits.exp() / logits.exp().sum()
    assert naive.isnan().any()
    assert logits.softmax(0).isfinite().all()
    shifted = logits - logits.max()
    assert shifted.max() == 0  # no exponent is positive
    assert torch.allclose(shifted.exp() / shifted.exp().sum(), logits.softmax(0), atol=1e-3)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for bad in ([math.inf, 1.0], [-math.inf, -math.inf]):  # overflowed; masked
            row = torch.tensor(bad, dtype=dtype)
            assert row.softmax(0).isnan().any()
            assert row.log_softmax(0).isnan().any()
    query = torch.full((64,), 40.0).half()
    assert (query @ query / 8).isinf()
    assert (query / 8 @ query).isfinite()  # scaled before the product
    return {"limit": f"{largest_exponent:.1f}", "logit": 12}


def epsilon() -> dict[str, object]:
    """Put 1e-8 into fp16."""
    eps = torch.tensor(1e-8)
    assert eps.half() == 0
    assert eps.bfloat16() > 0
    zero = torch.zeros((), dtype=torch.float16)
    assert (zero / (zero + 1e-8)).isnan()
    assert (zero + 1e-8).log().isinf()

    def stepped(**options: Any) -> Tensor:
        weight = nn.Parameter(torch.ones(1, dtype=torch.float16))
        weight.grad = torch.zeros_like(weight)
        torch.optim.Adam([weight], **options).step()
        return weight.detach()

    assert stepped(foreach=False).isnan()  # 0 / (sqrt(0) + 0)
    assert stepped(foreach=True).isnan()
    fused = stepped(fused=True)
    assert fused == 1
    smallest = FORMATS["fp16"].smallest_subnormal
    return {"eps": "1e-8", "smallest": f"{smallest:.0e}", "fused": fused.item()}


def too_large() -> dict[str, object]:
    """Cast 70,000 to every small format."""
    value = torch.tensor(70_000.0)
    edge = torch.tensor([65519.0, 65520.0]).half()
    assert edge[0].isfinite()
    assert edge[1].isinf()
    assert value.half().isinf()
    bf16 = value.bfloat16().item()
    assert abs(bf16 / 70_000 - 1) < 2**-8
    assert value.to(torch.float8_e5m2).float().isinf()
    e4m3 = value.to(torch.float8_e4m3fn).float()
    assert e4m3.isnan() or e4m3 == FORMATS["fp8_e4m3"].max  # which of them depends on the version
    assert not FORMATS["fp8_e4m3"].has_infinity
    return {
        "value": 70_000,
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
        "first_inf": 65520,
        "bf16": f"{bf16:.0f}",
        "e4m3": f"{e4m3.item():g}",
    }


def cancellation() -> dict[str, object]:
    """Compute a variance as a mean of squares less a squared mean, in bf16 and in fp32."""
    mean, spread = 30.0, 0.5
    values = (mean + spread * torch.randn(100_000)).bfloat16()
    true = values.float().var().item()

    def by_squares(x: Tensor) -> float:
        return ((x * x).mean() - x.mean() * x.mean()).item()

    in_bf16, in_fp32 = by_squares(values), by_squares(values.float())
    assert abs(in_fp32 / true - 1) < 0.01
    spacing = FORMATS["bf16"].spacing(mean**2)
    square = torch.tensor(mean**2).bfloat16()
    assert torch.nextafter(square, square * 2) - square == spacing
    assert in_bf16 % spacing == 0
    assert abs(in_bf16 / true - 1) >= 1  # wrong by as much as itself, or more

    at, step = torch.tensor(1.0).bfloat16(), 1e-3
    numerical = ((at + step) ** 2 - at**2).item() / step
    derivative = torch.autograd.functional.jacobian(torch.square, at.float()).item()
    assert (numerical, derivative) == (0, 2)  # the step is below half the spacing at 1
    return {
        "mean": f"{mean:g}",
        "true": f"{true:.2f}",
        "bf16": f"{in_bf16:g}",
        "square": f"{mean**2:.0f}",
        "spacing": f"{spacing:g}",
        "at": f"{at:g}",
        "step": f"{step:g}",
        "numerical": f"{numerical:g}",
        "derivative": f"{derivative:g}",
    }
