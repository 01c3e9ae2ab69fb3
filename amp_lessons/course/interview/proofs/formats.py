"""Proofs of the answers about number formats."""

from __future__ import annotations

import functools
import inspect
import json
import math
import subprocess
import sys
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons import autocast, formats, measure
from amp_lessons.formats import FORMATS

_ASK = """
import json, torch
backends = torch.backends
switches = {
    "products": backends.cuda.matmul.allow_tf32, "convolutions": backends.cudnn.allow_tf32,
    "bf16": backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
}
torch.set_float32_matmul_precision("high")
print(json.dumps({**switches, "products set to high": backends.cuda.matmul.allow_tf32}))
"""


@functools.cache
def _switches() -> dict[str, bool]:
    """Ask a fresh process for PyTorch's switches: in this one somebody may have changed them."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def fields() -> dict[str, object]:
    """Take the two 16-bit formats apart, and show what each of them loses first."""
    fp16, bf16, fp32 = (FORMATS[name] for name in ("fp16", "bf16", "fp32"))
    for ours, dtype in ((fp16, torch.float16), (bf16, torch.bfloat16)):
        told, one = torch.finfo(dtype), torch.ones((), dtype=dtype)
        assert 1 + ours.exponent_bits + ours.mantissa_bits == told.bits == 16
        assert (one.view(torch.int16) ^ (-one).view(torch.int16)) == torch.iinfo(torch.int16).min  # one bit
        assert told.eps == 2.0**-ours.mantissa_bits
        assert told.max == (2 - told.eps) * 2.0 ** (2 ** (ours.exponent_bits - 1) - 1)
        assert math.isclose(ours.decimal_digits, math.log10(2 / told.eps))
    assert bf16.exponent_bits == fp32.exponent_bits
    assert fp16.max < bf16.max
    assert torch.finfo(torch.float16).eps < torch.finfo(torch.bfloat16).eps

    large, small = torch.tensor(1e5), torch.tensor(1e-8)
    assert large.half().isinf()
    assert small.half() == 0
    assert (small * 2**16).half() > 0  # with a loss scale
    assert large.bfloat16().isfinite()
    assert small.bfloat16() > 0
    update = 3e-3
    assert torch.ones((), dtype=torch.float16) + update > 1
    assert torch.ones((), dtype=torch.bfloat16) + update == 1
    sums = {dtype: torch.zeros((), dtype=dtype) for dtype in (torch.float16, torch.bfloat16)}
    for total in sums.values():
        for _ in range(1000):
            total += 1
    assert sums[torch.float16] == 1000 > sums[torch.bfloat16]
    return {
        "fp16": f"{fp16.exponent_bits} and {fp16.mantissa_bits}",
        "bf16": f"{bf16.exponent_bits} and {bf16.mantissa_bits}",
        "fp16_max": f"{fp16.max:.0f}",
        "bf16_max": f"{bf16.max:.1e}",
        "fp16_digits": f"{fp16.decimal_digits:.1f}",
        "bf16_digits": f"{bf16.decimal_digits:.1f}",
    }


def fp16_or_bf16() -> dict[str, object]:
    """Round the same values to both, and train under bf16 autocast and with bf16 weights."""
    values = torch.randn(10_000)

    def error(x: Tensor, dtype: torch.dtype) -> float:
        return formats.relative_error(x.to(dtype).float(), x)

    ratio = error(values, torch.bfloat16) / error(values, torch.float16)
    assert 7 < ratio < 9  # three bits more: a factor of eight
    assert (values * 1e-10).half().count_nonzero() == 0
    assert (values * 1e6).half().isinf().float().mean() > 0.9
    assert error(values * 1e-10, torch.bfloat16) < 0.01
    assert error(values * 1e6, torch.bfloat16) < 0.01
    assert (values * 1e6).bfloat16().isfinite().all()  # a bf16 model's activations, inf in fp16

    def moved(autocast_on: bool, weights: torch.dtype) -> Tensor:
        """Fit a line in small steps; return how far its weights have moved."""
        torch.manual_seed(1)
        inputs, layer = torch.randn(64, 8), nn.Linear(8, 1).to(weights)
        start = layer.weight.detach().float().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
        for _ in range(100):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast_on):
                output = layer(inputs.to(weights)).float()
            (output - inputs.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return layer.weight.detach().float() - start

    exact = moved(False, torch.float32)
    assert formats.relative_error(moved(True, torch.float32), exact) < 0.01  # bf16 in between is harmless
    assert formats.relative_error(moved(False, torch.bfloat16), exact) > 0.5  # bf16 weights are not
    rates = {name: sheet.flop_per_s for name, sheet in measure.GPUS.items()}
    assert rates["A100 SXM 80 GB"]["bf16"] == rates["A100 SXM 80 GB"]["fp16"]  # neither is the faster one
    assert all("bf16" not in rates[before_ampere] for before_ampere in ("V100 SXM2 32 GB", "T4"))
    return {"ratio": f"{ratio:.0f}"}


def masters() -> dict[str, object]:
    """Make a thousand small updates of a weight: in bf16, with a loss scale, and with an fp32 master."""
    update, steps = 1e-3, 1000
    assert inspect.signature(torch.optim.Adam).parameters["lr"].default == update
    adams = nn.Parameter(torch.ones(()))
    adams.grad = torch.tensor(7.0)
    torch.optim.Adam([adams]).step()
    assert math.isclose(1 - adams.item(), update, rel_tol=1e-3)  # whatever the gradient
    weight, master = torch.ones((), dtype=torch.bfloat16), torch.ones(())
    for _ in range(steps):
        weight += update
        master += update
    assert weight == 1  # it has not moved
    assert master.bfloat16() == 2
    half_spacing = FORMATS["bf16"].spacing(1.0) / 2
    half_below, one = half_spacing / 2, torch.ones((), dtype=torch.bfloat16)
    assert one + 0.99 * half_spacing == 1 < one + 1.01 * half_spacing
    assert one - 0.99 * half_below == 1 > one - 1.01 * half_below

    assert torch.tensor(update).bfloat16() > 0  # it is not zero,
    scaled = nn.Parameter(torch.ones((), dtype=torch.bfloat16))
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(scaled * 1).backward()
    scaler.step(torch.optim.SGD([scaled], lr=update))
    assert scaled == 1  # and scaling the loss does not help

    layer = nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        output = layer(torch.ones(4, 4, requires_grad=True))
    assert layer.weight.dtype == torch.float32  # the master is the parameter,
    assert output.grad_fn._saved_mat2.dtype == torch.bfloat16  # and what is cast is the copy
    return {
        "update": update,
        "steps": steps,
        "half_spacing": f"{half_spacing:.4f}",
        "plain": weight.item(),
        "master": master.bfloat16().item(),
    }


def subnormals() -> dict[str, object]:
    """Count the significant bits that fp16 has left for smaller and smaller numbers."""
    fp16 = FORMATS["fp16"]

    def worst_error(size: float) -> float:
        values = torch.linspace(size, 2 * size, 1001)[:-1]
        return ((values.half().float() - values) / values).abs().max().item()

    fading = [worst_error(2.0**power) for power in range(-14, -24, -1)]
    assert fading == sorted(fading)  # bit by bit, and not at an edge
    normal, at = fading[0], 1e-7
    around = torch.linspace(0.8 * at, 1.2 * at, 1001)
    deep = (around.half().float() / around - 1).abs().max().item()
    assert fp16.smallest_normal == 2.0**-14
    assert fp16.smallest_subnormal == 2.0**-24
    assert normal <= 2**-11
    assert 0.32 < deep < 0.34  # halfway between its two smallest numbers it is a third

    gradients = torch.randn(1_000_000) * torch.randn(1_000_000).mul(2).sub(12).exp()  # 6e-6, widely spread
    spikes, largest = 8, gradients.abs().max().item()
    scale = 2.0 ** math.floor(math.log2(fp16.max / (spikes * largest)))

    def of_the_norm(scale: float) -> float:
        return (gradients[(gradients * scale).abs() < fp16.smallest_normal].norm() / gradients.norm()).item()

    assert (gradients.abs() < fp16.smallest_normal).float().mean() > 0.7
    assert of_the_norm(scale) < 1e-6 < 1e-2 < of_the_norm(1.0)
    assert (gradients * scale * spikes).half().isfinite().all()
    return {
        "normal": f"{fp16.smallest_normal:.1e}",
        "last": f"{fp16.smallest_subnormal:.0e}",
        "normal_error": f"{normal:.2%}",
        "deep_error": f"{deep:.0%}",
        "at": f"{at:.0e}",
        "largest": f"{fp16.max:.0f}",
    }


def tf32() -> dict[str, object]:
    """Ask for TF32's fields, and a fresh PyTorch for its switches, before and after they are set."""
    tf32, fp32, fp16 = FORMATS["tf32"], FORMATS["fp32"], FORMATS["fp16"]
    assert tf32.exponent_bits == fp32.exponent_bits
    assert tf32.mantissa_bits == fp16.mantissa_bits
    assert 1 + tf32.exponent_bits + tf32.mantissa_bits == 19
    assert not hasattr(torch, "tf32")  # it is no dtype: tensors stay fp32
    switches = _switches()
    assert switches["convolutions"]
    assert not switches["products"]
    assert switches["products set to high"]
    layer = nn.Linear(4, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert layer(torch.ones(4, 4)).dtype == torch.float32  # what stays in fp32 is for TF32
    return {
        "exponent": tf32.exponent_bits,
        "mantissa": tf32.mantissa_bits,
        "bytes": torch.float32.itemsize,
        **_fp32_by_products_of_bf16(),
    }


def _in_bf16(numbers: Tensor) -> Tensor:
    """Write fp32 numbers as sums of three bf16 numbers, the largest first, along a new first dimension."""
    rest, pieces = numbers, []
    for _ in range(3):
        pieces.append(rest.bfloat16().float())
        rest = rest - pieces[-1]
    return torch.stack(pieces)


def _fp32_by_products_of_bf16() -> dict[str, object]:
    """Multiply fp32 matrices by all products of their pieces, in fp32, and with operands in TF32."""
    a, b = torch.randn(2, 256, 256)
    exact = a.double() @ b.double()
    pieces = _in_bf16(a), _in_bf16(b)
    assert torch.equal(pieces[0].sum(0), a)
    products = torch.stack([left @ right for left in pieces[0] for right in pieces[1]])
    in_tf32 = formats.product(a, b, FORMATS["tf32"])
    emulated, itself, rounded = (
        float((found.double() - exact).norm() / exact.norm()) for found in (products.sum(0), a @ b, in_tf32)
    )
    assert emulated < 2 * itself < rounded / 100
    others = a[:, ::2] @ b[::2] + a[:, 1::2] @ b[1::2]  # another GPU: another order of the same sums
    off_on_both, off_on_one = (formats.relative_error(each, others) for each in (a @ b, in_tf32))
    assert 0 < off_on_both < off_on_one / 100
    bits = FORMATS["bf16"].mantissa_bits + 1
    assert len(pieces[0]) * bits == FORMATS["fp32"].mantissa_bits + 1
    fraction = 1 + torch.rand(10_000)
    for exponent, whole in ((-109, True), (-112, False)):
        numbers = fraction * 2.0**exponent
        assert torch.equal(_in_bf16(numbers).sum(0), numbers) == whole
    return {
        "pieces": "three",
        "digits": bits,
        "all": FORMATS["fp32"].mantissa_bits + 1,
        "products": len(products),
        "small": "2⁻¹¹⁰",
    }


def stagnation() -> dict[str, object]:
    """Count by adding one, in 16 bits and in fp32, and keep an average of weights."""
    steps, counted = 5000, {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        total, one = torch.zeros((), dtype=dtype), torch.ones((), dtype=dtype)
        for _ in range(steps):
            total += one
        neighbour = (total.view(torch.int16) + 1).view(dtype)
        assert (neighbour - total) / 2 == 1  # one is half the spacing
        assert total.isfinite()  # and nothing has overflowed
        counted[name] = total.item()
        in_one_tensor = torch.ones(steps, dtype=dtype).sum()
        assert in_one_tensor == torch.tensor(float(steps)).to(dtype)  # rounded once: its parts were fp32

    rows, cell = torch.zeros(steps, dtype=torch.long), torch.zeros(1, dtype=torch.bfloat16)
    cell.index_add_(0, rows, torch.ones(steps, dtype=torch.bfloat16))
    embedding = nn.Parameter(torch.zeros(1, 1, dtype=torch.bfloat16))
    nn.functional.embedding(rows, embedding).sum().backward()
    assert cell == embedding.grad == counted["bf16"]
    average, weight = torch.tensor([1.0, 1.5], dtype=torch.bfloat16)
    for _ in range(1000):
        average = average.lerp(weight, 0.001)
    assert average == 1  # it should be near 1.3
    end = torch.tensor(2.0**24)
    assert end + 1 == end > end - 1  # fp32 stops too, far later
    return {
        "bf16": f"{counted['bf16']:.0f}",
        "fp16": f"{counted['fp16']:.0f}",
        "fp32": f"{end.item():.0f}",
    }


def kahan_or_stochastic() -> dict[str, object]:
    """Add small updates to bf16 weights: with a compensation, and with random rounding."""
    weight, lost = torch.ones((), dtype=torch.bfloat16), torch.zeros((), dtype=torch.bfloat16)
    plain, update = weight.clone(), torch.tensor(1e-3).bfloat16()
    for _ in range(1000):
        plain += update
        corrected = update - lost
        after = weight + corrected
        weight, lost = after, (after - weight) - corrected  # both are bf16
    assert plain == 1
    assert weight == 2

    updates, draw = torch.full((1000, 200), 1e-3), torch.Generator().manual_seed(0)
    path = formats.running_sum(updates, FORMATS["bf16"], "stochastic", start=1.0, generator=draw)
    random = path[-1]
    assert abs(random.mean() - 2) < 0.02  # right on average
    assert random.std() > 0.02  # and noisy, one by one:
    assert (
        1.6 < (path[-1] - path[499]).std() / (path[124] - 1).std() < 2.5
    )  # the root of four times the steps
    assert (path[0] - 1.001).abs().max() > 1e-3  # rounded up: further off than lost

    master = torch.randn(1000, generator=draw)
    upper, lower = (master.view(torch.int32) >> 16).to(torch.int16), master.view(torch.int32).to(torch.int16)
    assert (upper.view(torch.bfloat16).float() - master).abs().max() < FORMATS["bf16"].spacing(4.0)
    assert torch.equal((upper.int() << 16 | lower.int() & 0xFFFF).view(torch.float32), master)

    def stochastic(x: Tensor, bits: Tensor) -> Tensor:
        """Add random bits below those that bf16 has, and cut them off."""
        return (((x.view(torch.int32) + bits) >> 16) << 16).view(torch.float32)

    bits = torch.randint(2**16, (100_000,), dtype=torch.int32, generator=draw)
    low, gap = 1.0, FORMATS["bf16"].spacing(1.0)
    rounded = stochastic(torch.full((100_000,), low + 0.3 * gap), bits)
    assert set(rounded.tolist()) == {low, low + gap}
    assert abs((rounded > low).float().mean() - 0.3) < 0.01  # the part of the gap that is covered
    assert stochastic(torch.full((100_000,), torch.inf), bits).isinf().all()
    between = low + gap * torch.rand(100_000, generator=draw)  # the numbers between two neighbours
    cut, noisy = (each - between for each in (stochastic(between, 0 * bits), stochastic(between, bits)))
    assert abs(cut.mean() / gap + 0.5) < 0.01 > abs(noisy.mean() / gap)  # towards zero, half a spacing
    assert torch.tensor(low).bfloat16() + 2**-9 == low  # added in bf16, nothing would be left to draw for
    nans = torch.tensor([0x7F800001, 0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    assert nans.isnan().all()
    assert not stochastic(nans, torch.tensor([0, 1], dtype=torch.int32)).isnan().any()  # inf, and zero
    steps, replicas = 100, torch.ones(2, 1000)
    for _ in range(steps):
        bits = torch.randint(2**16, (2, 1000), dtype=torch.int32, generator=draw)  # each draws its own
        replicas = stochastic(replicas + 1e-3, bits)
    apart = (replicas[0] != replicas[1]).float().mean().item()
    assert apart > 0.5
    return {
        "steps": len(updates),
        "update": f"{updates[0, 0]:g}",
        "extra": lost.itemsize,
        "kahan": weight.item(),
        "plain": plain.item(),
    }


def accumulate() -> dict[str, object]:
    """Multiply bf16 matrices with sums kept in fp32, and with sums kept in bf16."""
    length, spacing = 4096, torch.finfo(torch.bfloat16).eps
    a, b = torch.rand(4, length).bfloat16(), torch.rand(length, 4).bfloat16()
    exact = a.double() @ b.double()
    wide = formats.relative_error(a.float() @ b.float(), exact)
    assert wide < 1e-5
    assert (a @ b / exact - 1).abs().max() <= spacing / 2  # PyTorch's own: only its result is rounded to bf16
    total = torch.zeros(4, 4, dtype=torch.bfloat16)
    for k in range(length):
        product = a[:, k : k + 1] * b[k : k + 1]
        total += product
    narrow = formats.relative_error(total.float(), exact)
    assert narrow > 0.1
    assert torch.equal(total + product, total)  # it stands: products are too small to change it
    assert (total < exact).all()  # so nothing cancels: it goes one way
    assert _switches()["bf16"]  # partial sums of a split product may be rounded, unless one says no

    unrounded = torch.rand(4, length), torch.rand(length, 4)
    rounded = [operand.bfloat16().double() for operand in unrounded]
    inputs = formats.relative_error(rounded[0], unrounded[0])
    through = formats.relative_error(rounded[0] @ rounded[1], unrounded[0].double() @ unrounded[1].double())
    assert through < inputs / 10  # the rounding of operands cancels
    return {"length": length, "wide": "1e-5", "narrow": f"{narrow:.0%}"}


def positions() -> dict[str, object]:
    """Number the tokens of a sequence in 16 bits, and turn the numbers into angles."""
    numbers = torch.arange(8192)
    exact = {
        name: next(n for n in range(5000) if torch.tensor(n + 1).to(dtype).item() != n + 1)
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16))
    }
    assert exact == {"bf16": 256, "fp16": 2048}
    assert len(numbers.float().unique()) == len(numbers)
    frequencies = 10_000 ** -(torch.arange(0, 64, 2) / 64)
    assert frequencies.max() == frequencies[0] == 1  # its angle is the position itself
    phase = (numbers.bfloat16().float() - numbers).abs().max().item()
    assert phase > 2 * 2 * math.pi

    column = numbers.float()[:, None]
    right = column.double() * frequencies.double()
    with autocast.region("cuda", torch.bfloat16):
        cast_down = [column @ frequencies[None], torch.einsum("n,d->nd", numbers.float(), frequencies)]
        kept = [column * frequencies]
        with torch.autocast("cpu", enabled=False):
            kept.append(column @ frequencies[None])
    for angles in cast_down:
        assert angles.dtype == torch.bfloat16
        assert (angles - right).abs().max() > math.pi
    for angles in kept:
        assert (angles.cos().bfloat16() - right.cos()).abs().max() < 0.01  # cast at the end

    # Frequencies that are a buffer of the model: rounded with it, and no cast brings them back
    class Rotary(nn.Module):
        frequencies: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("frequencies", 10_000 ** -(torch.arange(0, 128, 2) / 128), persistent=False)

    rotary = Rotary()
    wanted = column.double() * rotary.frequencies.double()
    assert (column * rotary.frequencies - wanted).abs().max() < 0.001
    rotary.bfloat16().float()
    errors = (column * rotary.frequencies - wanted).abs()  # a plain multiplication, no autocast
    buffer = errors.max().item()
    assert buffer > math.pi
    assert errors.argmax() // errors.shape[1] == len(numbers) - 1  # the last position's
    return {
        "bf16_exact": exact["bf16"],
        "tokens": len(numbers),
        "phase": f"{phase:.0f}",
    }


def norm_overflow() -> dict[str, object]:
    """Take the root of a mean of squares in fp16, by hand and by PyTorch's own norm."""
    values = torch.ones(10).half()
    values[0] = 300
    mean = values.float().square().mean()
    largest = torch.finfo(torch.float16).max
    assert mean < largest < 300**2
    assert (values * values).mean().isinf()  # the mean would have fitted, its terms do not
    module = torch.rms_norm(values, (10,))
    assert module.dtype == torch.float16
    assert torch.allclose(module.float(), values.float() / mean.sqrt(), rtol=1e-3)  # as in fp32, cast back

    # Where a norm casts back: as torch's own behind the gain, or before it, which rounds twice
    rows, gain = torch.randn(512, 1024).bfloat16(), (1 + 0.2 * torch.randn(1024)).bfloat16()
    normed = torch.rms_norm(rows.float(), (1024,), eps=1e-6)
    behind, before = (normed * gain.float()).bfloat16(), normed.bfloat16() * gain
    exact = torch.rms_norm(rows.double(), (1024,), eps=1e-6) * gain.double()
    assert torch.equal(behind, torch.rms_norm(rows, (1024,), gain, eps=1e-6))
    assert (behind != before).double().mean() > 0.2
    assert (behind - exact).norm() < 0.8 * (before - exact).norm()

    limit = 2.0**8
    below, at = torch.tensor([limit - 0.125, limit]).half() ** 2  # neighbours
    assert below.isfinite()
    assert at.isinf()

    policy = autocast.policy("cuda")
    listed = {name.partition(".")[0].removeprefix("aten::"): rule.name for name, rule in policy.items()}
    for name in ("pow", "sum", "rms_norm", "layer_norm", "group_norm"):
        assert listed[name].startswith("FP32")
    assert not {"mul", "mean", "batch_norm"} & set(listed)
    return {
        "value": 300,
        "largest": f"{largest:.0f}",
        "limit": f"{limit:.0f}",
    }


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
    """Put 1e-8 into fp16, into Adam on fp16 weights, and into Adam under autocast."""
    eps = torch.tensor(1e-8)
    zero = torch.zeros((), dtype=torch.float16)
    smallest = torch.ones((), dtype=torch.int16).view(torch.float16)  # the first pattern above zero's
    assert smallest == FORMATS["fp16"].smallest_subnormal
    assert eps.half() == 0
    assert (zero / (zero + 1e-8)).isnan()
    assert (zero + 1e-8).log() == -math.inf
    assert zero.bfloat16() / (zero.bfloat16() + 1e-8) == 0  # fine

    def stepped(dtype: torch.dtype = torch.float16, gradient: float = 0, **options: Any) -> Tensor:
        weight = nn.Parameter(torch.ones(1, dtype=dtype))
        weight.grad = torch.full_like(weight, gradient)
        torch.optim.Adam([weight], **options).step()
        return weight.detach()

    assert inspect.signature(torch.optim.Adam).parameters["eps"].default == eps
    assert stepped(foreach=False).isnan()  # 0 / (sqrt(0) + 0)
    assert stepped(foreach=True).isnan()
    fused = stepped(fused=True)
    assert fused == 1

    def went(dtype: torch.dtype) -> float:
        weight = nn.Parameter(torch.ones(1, dtype=dtype))
        adam = torch.optim.Adam([weight], fused=True)
        for _ in range(50):
            weight.grad = torch.full_like(weight, 1e-5)
            adam.step()
        return 1 - weight.item()

    assert 3 < went(torch.float16) / went(torch.float32) < 10  # the square of 1e-5 is stored as zero

    layer = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    with torch.autocast("cpu", torch.float16):
        loss = (layer(torch.zeros(2, 2)) * 0).sum()
    loss.backward()
    optimizer.step()
    assert layer.weight.isfinite().all()
    assert {value.dtype for state in optimizer.state.values() for value in state.values()} == {torch.float32}

    raised, small = 1e-4, 1e-5
    usual, damped = (1 - stepped(torch.float32, small, eps=each) for each in (1e-8, raised))
    share = (damped / usual).item()
    assert math.isclose(share, small / (small + raised), rel_tol=0.01)
    return {
        "eps": "1e-8",
        "smallest": f"{smallest.item():.0e}",
        "raised": "1e-4",
        "small": "1e-5",
        "share": f"{share:.0%}",
    }


def too_large() -> dict[str, object]:
    """Cast 70,000 to every small format."""
    value = torch.tensor(70_000.0)
    first_inf = 65520
    below, at = torch.tensor([first_inf - 0.01, first_inf]).half()
    assert below == torch.finfo(torch.float16).max
    assert at.isinf()
    assert value.half().isinf()
    bf16 = value.bfloat16().item()
    assert 2 < 8 * math.log10(2) < 3  # the digits of a significand of eight bits
    assert 0 < abs(bf16 - 70_000) <= FORMATS["bf16"].spacing(70_000) / 2

    codes = torch.arange(256, dtype=torch.uint8)
    e5m2, e4m3 = (codes.view(dtype).float() for dtype in (torch.float8_e5m2, torch.float8_e4m3fn))
    assert value.to(torch.float8_e5m2).float().isinf()
    assert e5m2.isinf().any()
    assert not e4m3.isinf().any()
    top = 0b0_1111_000  # with an inf, this exponent would hold nothing else but NaN
    assert e4m3.nan_to_num().max() == e4m3[top:128].nan_to_num().max() == 448 > e4m3[:top].max()
    cast = value.to(torch.float8_e4m3fn).float()
    assert cast.isnan() or cast == 448  # which of them depends on the version
    assert ((value / 1024).to(torch.float8_e4m3fn).float() * 1024 / value - 1).abs() < 0.07  # with a scale
    return {
        "value": 70_000,
        "largest": f"{torch.finfo(torch.float16).max:.0f}",
        "first_inf": first_inf,
        "bf16": f"{bf16:.0f}",
        "e4m3": f"{cast.item():g}",
    }


def cancellation() -> dict[str, object]:
    """Compute a variance as a mean of squares less a squared mean, in bf16 and in fp32."""
    mean, noise = 30.0, 0.5 * torch.randn(100_000)
    values = (mean + noise).bfloat16()
    true = values.double().var().item()

    def by_squares(x: Tensor) -> float:
        squares, square = (x * x).mean(), x.mean() * x.mean()
        assert squares.isfinite()
        assert square.isfinite()
        return (squares - square).item()

    in_bf16, in_fp32 = by_squares(values), by_squares(values.float())
    assert abs(in_fp32 / true - 1) < 0.01
    square = torch.tensor(mean**2).bfloat16()
    spacing = (torch.nextafter(square, square * 2) - square).item()
    assert true < spacing
    assert in_bf16 in (0, spacing)
    assert abs(in_bf16 / true - 1) >= 1  # wrong by as much as itself, or more
    negative = by_squares((mean + 0.07 + noise).bfloat16())
    assert negative < 0
    assert math.isnan(torch.tensor(negative).sqrt())
    centred = (values.float() - values.float().mean()).square().mean().item()
    assert abs(centred / true - 1) < 0.01
    assert abs(values.var().item() / true - 1) < 0.01

    at, step = torch.tensor(1.0).bfloat16(), 1e-3
    numerical = ((at + step) ** 2 - at**2).item() / step
    derivative = torch.autograd.functional.jacobian(torch.square, at.float()).item()
    assert (numerical, derivative) == (0, 2)  # the step is below half the spacing at 1
    weight = torch.tensor(1.5).bfloat16()
    assert at + 0.001 * (weight - at) == at  # an average of weights
    assert torch.tensor(1.001).bfloat16() - at == 0  # a prediction less its target, or two runs
    assert torch.tensor(1.001) - at > 0.0009
    metres = 500_000 + 100 * torch.rand(1000)
    centred_metres = metres - metres.mean()
    assert metres.bfloat16().unique().numel() == 1 < 0.01 * centred_metres.bfloat16().unique().numel()
    times = 1_700_000_000 + torch.arange(0, 3600, 60)  # an hour
    assert times.float().bfloat16().unique().numel() == 1
    assert times.float().unique().numel() < times.numel() == (times - times[0]).float().unique().numel()
    return {
        "mean": f"{mean:g}",
        "true": f"{true:.2f}",
        "square": f"{mean**2:.0f}",
        "spacing": f"{spacing:g}",
        "at": f"{at:g}",
        "step": f"{step:g}",
        "numerical": f"{numerical:g}",
        "derivative": f"{derivative:g}",
        "unix_step": f"{FORMATS['fp32'].spacing(times[0].item()):.0f}",
    }


def second_moment() -> dict[str, object]:
    """Keep Adam's second moment in 16 bits: what range loses, what precision loses, what epsilon does."""
    gradient, epsilon = 1e-4, 1e-8
    square = torch.tensor(gradient).square()
    assert square.half() == 0  # by range
    assert square.bfloat16() > 0

    def step(moment: Tensor, gradient: float = gradient) -> float:
        return gradient / (moment.float().sqrt().item() + epsilon)

    larger = step(square.half()) / step(square)
    assert larger > 1000
    gap = FORMATS["bf16"].spacing(0.75)  # below one
    slow, fast, steps, goal = 0.999, 0.95, 200, 0.25

    def averaged(beta2: float, dtype: torch.dtype) -> float:
        """Begin at one, and average squares of ``goal``, as torch.optim.Adam does it."""
        moment, root = torch.ones((), dtype=dtype), torch.tensor(goal**0.5, dtype=dtype)
        for _ in range(steps):
            moment.mul_(beta2).addcmul_(root, root, value=1 - beta2)
        return moment.item()

    assert (1 - slow) * (1 - goal) < gap / 2 < (1 - fast) * (1 - goal)
    assert averaged(slow, torch.bfloat16) == 1 > 0.9 > averaged(slow, torch.float32)
    followed = averaged(fast, torch.bfloat16)
    assert abs(followed - goal) < 0.05
    stuck = step(torch.tensor(averaged(slow, torch.bfloat16)), 0.1)
    assert stuck < step(torch.tensor(averaged(slow, torch.float32)), 0.1)  # too small
    assert abs(step(torch.tensor(epsilon).square(), epsilon) - 0.5) < 1e-3  # a gradient as large as epsilon
    assert step(torch.tensor(1e-14), 1e-7) > 0.9  # far above it: the square, 1e-14, lies far below epsilon
    return {
        "gradient": f"10^{math.log10(gradient):.0f}",
        "larger": f"{round(larger, -3):,.0f}",
        "slow": slow,
        "fast": fast,
    }
