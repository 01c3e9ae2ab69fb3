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

from amp_lessons import formats
from amp_lessons.course.interview.proofs.loss_scaling import _step
from amp_lessons.formats import FORMATS

_ASK = """
import json, torch
products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
switches = {
    "products": products.allow_tf32, "convolutions": convolutions.allow_tf32,
    "bf16": products.allow_bf16_reduced_precision_reduction,
}
torch.set_float32_matmul_precision("high")
print(json.dumps({**switches, "high": products.allow_tf32}))
"""


@functools.cache
def _switches() -> dict[str, bool]:
    """Ask a fresh process for PyTorch's switches: in this one somebody may have changed them."""
    done = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def fields() -> None:
    """Take the two 16-bit formats apart, and show what each of them loses first."""
    fp16, bf16 = FORMATS["fp16"], FORMATS["bf16"]
    assert torch.tensor(1e5).half().isinf() > torch.tensor(1e5).bfloat16().isinf()
    assert torch.ones((), dtype=torch.float16) + 3e-3 > 1 == torch.ones((), dtype=torch.bfloat16) + 3e-3


def fp16_or_bf16() -> None:
    """Round the same values to both, and train under bf16 autocast and with bf16 weights."""
    values = torch.randn(10_000)
    errors = [formats.relative_error(values.to(d).float(), values) for d in (torch.bfloat16, torch.float16)]

    def moved(mixed: bool, weights: torch.dtype) -> Tensor:
        """Fit a line in small steps; return how far its weights have moved."""
        torch.manual_seed(1)
        inputs, layer = torch.randn(64, 8), nn.Linear(8, 1).to(weights)
        start = layer.weight.detach().float().clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=1e-4)
        for _ in range(100):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                output = layer(inputs.to(weights)).float()
            _step(optimizer, (output - inputs.sum(1, keepdim=True)).square().mean())
        return layer.weight.detach().float() - start

    exact = moved(False, torch.float32)
    assert formats.relative_error(moved(True, torch.float32), exact) < 0.01  # bf16 in between is harmless
    assert formats.relative_error(moved(False, torch.bfloat16), exact) > 0.5  # bf16 weights are not
    ratio = errors[0] / errors[1]


def masters() -> None:
    """Make a thousand small updates of a weight: in bf16, with a loss scale, and with an fp32 master."""
    update, steps = 1e-3, 1000
    weight, master = torch.ones((), dtype=torch.bfloat16), torch.ones(())
    for _ in range(steps):
        weight += update
        master += update
    half_spacing = FORMATS["bf16"].spacing(1.0) / 2
    one = torch.ones((), dtype=torch.bfloat16)
    assert one + 0.99 * half_spacing == 1 < one + 1.01 * half_spacing
    scaled = nn.Parameter(one)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(scaled * 1).backward()
    scaler.step(torch.optim.SGD([scaled], lr=update))
    assert scaled == 1  # scaling the loss does not help
    with_master = master.bfloat16()


def subnormals() -> None:
    """Count the significant bits that fp16 has left for smaller and smaller numbers."""
    fp16 = FORMATS["fp16"]

    def worst_error(low: float, high: float) -> float:
        values = torch.linspace(low, high, 1001)
        return (values.half().float() / values - 1).abs().max().item()

    fading = [worst_error(2.0**power, 2.0 ** (power + 1)) for power in range(-14, -24, -1)]
    assert fading == sorted(fading)  # bit by bit, and not at an edge
    at = 1e-7
    deep_error = worst_error(0.8 * at, 1.2 * at)


def tf32() -> None:
    """Ask a fresh PyTorch for TF32's switches, and multiply fp32 matrices by products of bf16."""
    tf32, bf16, fp32 = FORMATS["tf32"], FORMATS["bf16"], FORMATS["fp32"]
    switches = _switches()
    assert [switches[name] for name in ("convolutions", "products", "high")] == [True, False, True]

    def in_bf16(rest: Tensor) -> list[Tensor]:
        """Write fp32 numbers as sums of three bf16 numbers, the largest first."""
        pieces = []
        for _ in range(3):
            pieces.append(rest.bfloat16().float())
            rest = rest - pieces[-1]
        return pieces

    a, b = torch.randn(2, 256, 256)
    partial = [left @ right for left in in_bf16(a) for right in in_bf16(b)]
    products = len(partial)
    exact = a.double() @ b.double()
    emulated = formats.relative_error(torch.stack(partial).sum(0), exact)
    assert emulated < 2 * formats.relative_error(a @ b, exact)
    digits, all_digits = bf16.mantissa_bits + 1, fp32.mantissa_bits + 1


def stagnation() -> None:
    """Count by adding one, in 16 bits and in fp32."""
    steps, counted = 5000, {}
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
        total = torch.zeros((), dtype=dtype)
        for _ in range(steps):
            total += 1
        counted[name] = total.item()
        in_one_tensor = torch.ones(steps, dtype=dtype).sum()
        assert in_one_tensor == torch.tensor(float(steps)).to(dtype)  # rounded once: its parts were fp32
    end = torch.tensor(2.0**24)
    assert end + 1 == end > end - 1


def kahan_or_stochastic() -> None:
    """Add small updates to bf16 weights: with a compensation, and with random rounding."""
    weight, lost = torch.ones((), dtype=torch.bfloat16), torch.zeros((), dtype=torch.bfloat16)
    plain, update, steps = weight.clone(), 1e-3, 1000
    for _ in range(steps):
        plain += update
        corrected = torch.tensor(update).bfloat16() - lost
        after = weight + corrected
        weight, lost = after, (after - weight) - corrected  # both are bf16
    draw = torch.Generator().manual_seed(0)
    updates = torch.full((steps, 200), update)
    ends = formats.running_sum(updates, FORMATS["bf16"], "stochastic", start=1.0, generator=draw)[-1]
    assert abs(ends.mean() - 2) < 0.02 < ends.std()  # right on average, and noisy

    def stochastic(x: Tensor) -> Tensor:
        """Add random bits below those that bf16 has, and cut them off."""
        bits = torch.randint(2**16, x.shape, dtype=torch.int32, generator=draw)
        return (((x.view(torch.int32) + bits) >> 16) << 16).view(torch.float32)

    gap = FORMATS["bf16"].spacing(1.0)
    up = stochastic(torch.full((100_000,), 1 + 0.3 * gap)) > 1
    assert abs(up.float().mean() - 0.3) < 0.01  # the part of the gap that is covered
    nans = torch.tensor([0x7F800001], dtype=torch.int32).view(torch.float32)
    assert stochastic(nans).isinf()


def accumulate() -> None:
    """Multiply bf16 matrices with sums kept in fp32, and with sums kept in bf16."""
    length, wide = 4096, 1e-5
    a, b = torch.rand(4, length).bfloat16(), torch.rand(length, 4).bfloat16()
    exact = a.double() @ b.double()
    assert formats.relative_error(a.float() @ b.float(), exact) < wide
    total = torch.zeros(4, 4, dtype=torch.bfloat16)
    for k in range(length):
        product = a[:, k : k + 1] * b[k : k + 1]
        total += product
    assert torch.equal(total + product, total)  # it stands: products are too small to change it
    assert _switches()["bf16"]  # partial sums of a split product may be rounded, unless one says no
    narrow = formats.relative_error(total.float(), exact)


def positions() -> None:
    """Number the tokens of a sequence in bf16, and turn the numbers into angles."""
    tokens = 8192
    numbers = torch.arange(tokens)
    exact = next(n for n in range(5000) if torch.tensor(n + 1).bfloat16().item() != n + 1)
    frequencies = 10_000 ** -(torch.arange(0, 64, 2) / 64)  # of which the first is one
    phase = (numbers.bfloat16().float() - numbers).abs().max().item()
    column = numbers.float()[:, None]
    right = column.double() * frequencies.double()
    with torch.autocast("cpu", torch.bfloat16):
        cast_down = column @ frequencies[None]
    assert (cast_down - right).abs().max() > math.pi
    rounded = frequencies.bfloat16().float()  # as a buffer of the model: no cast brings it back
    assert (column * rounded - right).abs().max() > math.pi


def norm_overflow() -> None:
    """Take the mean of squares in fp16, by hand, and PyTorch's own norm."""
    values, limit, largest = torch.ones(10).half(), 2.0**8, torch.finfo(torch.float16).max
    values[0] = 300
    assert values.float().square().mean() < largest
    assert (values * values).mean().isinf()  # the mean would have fitted, its terms do not
    assert torch.rms_norm(values, (10,)).isfinite().all()
    below, at = torch.tensor([limit - 0.125, limit]).half() ** 2  # neighbours
    assert at.isinf() > below.isinf()


def softmax() -> None:
    """Take a softmax in fp16 with and without subtracting the largest logit, and of a row of -inf."""
    logits = torch.tensor([12.0, 11.0, 1.0]).half()
    limit = math.log(torch.finfo(torch.float16).max)
    naive = logits.exp() / logits.exp().sum()
    assert naive.isnan().any()
    assert logits.softmax(0).isfinite().all()
    for bad in ([math.inf, 1.0], [-math.inf, -math.inf]):  # overflowed; masked
        row = torch.tensor(bad)
        assert row.softmax(0).isnan().any()
        assert row.log_softmax(0).isnan().any()
    query = torch.full((64,), 40.0).half()
    assert (query @ query / 8).isinf() > (query / 8 @ query).isinf()  # scaled before the product


def epsilon() -> None:
    """Put 1e-8 into fp16, and into Adam on fp16 weights; then raise it."""
    zero, eps = torch.zeros((), dtype=torch.float16), 1e-8
    assert (zero / (zero + eps)).isnan()
    smallest = FORMATS["fp16"].smallest_subnormal

    def stepped(dtype: torch.dtype = torch.float16, gradient: float = 0, **options: Any) -> Tensor:
        weight = nn.Parameter(torch.ones(1, dtype=dtype))
        weight.grad = torch.full_like(weight, gradient)
        torch.optim.Adam([weight], **options).step()
        return weight.detach()

    assert stepped(foreach=False).isnan()  # 0 / (sqrt(0) + 0)
    assert stepped(foreach=True).isnan()
    assert stepped(fused=True) == 1
    raised, small = 1e-4, 1e-5
    usual, damped = (1 - stepped(torch.float32, small, eps=each) for each in (eps, raised))
    share = (damped / usual).item()


def too_large() -> None:
    """Cast 70,000 to the small formats."""
    value, first_inf = torch.tensor(70_000.0), 65520
    below, at = torch.tensor([first_inf - 0.01, first_inf]).half()
    assert below.isfinite()
    assert at.isinf()
    assert value.to(torch.float8_e5m2).float().isinf()
    e4m3 = value.to(torch.float8_e4m3fn).float().item()
    assert math.isnan(e4m3) or e4m3 == FORMATS["fp8_e4m3"].max  # which of them depends on the version
    largest, bf16 = torch.finfo(torch.float16).max, value.bfloat16()


def cancellation() -> None:
    """Compute a variance as a mean of squares less a squared mean, in bf16 and in fp32."""
    mean, noise = 30.0, 0.5 * torch.randn(100_000)
    values = (mean + noise).bfloat16()
    true = values.double().var().item()

    def by_squares(x: Tensor) -> float:
        return ((x * x).mean() - x.mean() * x.mean()).item()

    square = mean**2
    spacing = FORMATS["bf16"].spacing(square)
    assert true < spacing
    assert abs(by_squares(values) / true - 1) >= 1  # wrong by as much as itself, or more
    assert by_squares((mean + 0.07 + noise).bfloat16()) < 0
    assert abs(by_squares(values.float()) / true - 1) < 0.01
    assert abs(values.var().item() / true - 1) < 0.01

    at, step = torch.tensor(1.0).bfloat16(), 1e-3
    numerical = ((at + step) ** 2 - at**2).item() / step
    metres = 500_000 + 100 * torch.rand(1000)
    assert metres.bfloat16().unique().numel() == 1 < (metres - metres.mean()).bfloat16().unique().numel()
    derivative = torch.autograd.functional.jacobian(torch.square, at.float()).item()


def second_moment() -> None:
    """Keep Adam's second moment in 16 bits: what range loses, what precision loses, what epsilon does."""
    gradient, epsilon = 1e-4, 1e-8

    def step(moment: Tensor, gradient: float) -> float:
        return gradient / (moment.float().sqrt().item() + epsilon)

    square = torch.tensor(gradient).square()
    assert square.half() == 0 < square.bfloat16()
    larger = round(step(square.half(), gradient) / step(square, gradient), -3)
    assert abs(step(torch.tensor(epsilon).square(), epsilon) - 0.5) < 1e-3  # a gradient as large as epsilon
    slow, fast = 0.999, 0.95
    moments = torch.linspace(1, 2, 100).bfloat16()
    assert torch.equal(slow * moments, moments)  # not even where gradients are zero
    assert (fast * moments < moments).all()
