"""Proofs of the technical statements in answers about whole runs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit, autocast, formats, fp8, measure, parallel
from amp_lessons.course.material import data, models
from amp_lessons.formats import FORMATS


def _digits(count: int) -> tuple[Tensor, Tensor]:
    train = data.digits().train
    return train.images[:count], train.labels[:count]


def halve_cost() -> dict[str, object]:
    """Compute what a faster product makes of a step, on an A100, from fp32 by TF32 to bf16."""
    rate = measure.GPUS["A100 SXM 80 GB"].flop_per_s
    share = 0.7  # of the step, in fp32
    assert math.isclose(rate["tf32"] / rate["fp32"], 156 / 19.5)  # the data sheet's, dense
    assert math.isclose(rate["bf16"] / rate["fp32"], 312 / 19.5)

    def step(precision: str) -> float:
        return 1 - share + share * rate["fp32"] / rate[precision]

    tf32, bf16 = 1 / step("tf32"), 1 / step("bf16")
    assert math.isclose(tf32, 80 / (24 + 56 / 8))
    assert bf16 / tf32 < 1.3
    in_16_bits = step("bf16") - (1 - share) / 2  # at best: all that waits for memory moves half the bytes
    assert 1 / in_16_bits > 1.5 * bf16
    rest = (1 - share) / 2 / in_16_bits
    assert 0.7 < rest < (1 - share) / step("bf16")  # of the step, and more where less waits for memory
    return {
        "share": f"{share:.0%}",
        "tf32": f"{tf32:.1f}",
        "bf16": f"{bf16 / tf32:.1f}",
        "bf16_memory": f"{1 / in_16_bits / tf32:.1f}",
    }


def diverged() -> dict[str, object]:
    """Show two mechanisms: Adam's step after a calm stretch, and softmax of large logits in bf16."""

    def spike(beta2: float, calm: int) -> float:
        """Return the step on a gradient of 1, with a rate of 1, after ``calm`` ones of 1e-6."""
        weight = nn.Parameter(torch.zeros(()))
        optimizer = torch.optim.Adam([weight], lr=1.0, betas=(0.9, beta2))
        for step in range(calm + 1):
            weight.grad = torch.tensor(1e-6 if step < calm else 1.0)
            before = weight.item()
            optimizer.step()
        return abs(weight.item() - before)

    usual, faster = spike(0.999, calm=5000), spike(0.95, calm=500)
    assert math.isclose(usual, 0.1 / 0.001**0.5, rel_tol=0.05)  # (1 - beta1) / sqrt(1 - beta2)
    assert math.isclose(faster, 0.1 / 0.05**0.5, rel_tol=0.01)  # beta two matters

    logit = 100.0
    half_step = FORMATS["bf16"].spacing(logit) / 2
    ratio = math.exp(half_step) - 1
    assert torch.tensor(logit + half_step).bfloat16() == logit  # a tie, rounded to even
    exact, rounded = (
        torch.tensor([logit + half_step, logit]).to(dtype).double().softmax(0)
        for dtype in (torch.float32, torch.bfloat16)
    )
    assert math.isclose((exact[0] / exact[1]) / (rounded[0] / rounded[1]) - 1, ratio, rel_tol=1e-6)
    both = math.exp(2 * half_step) - 1
    pair = torch.tensor([logit + half_step, logit - half_step])  # two ties, to the same number
    assert torch.equal(pair.bfloat16().float(), torch.full((2,), logit))
    assert math.isclose(pair.double().softmax(0).div(pair.double().softmax(0)[1])[0] - 1, both, rel_tol=1e-6)
    queries, keys = (1000 * torch.randn(64, 128) for _ in range(2))
    products = F.rms_norm(queries, (128,)) @ F.rms_norm(keys, (128,)).t() / 128**0.5
    assert products.abs().max() < 128**0.5 + 1e-3 < (queries @ keys.t() / 128**0.5).abs().max()

    def run(start: float, steps: int, dtype: torch.dtype) -> tuple[float, float]:
        """Train a weight of 1 behind one that decays and is rarely pushed; return both, in fp32."""
        pushed, trained = torch.tensor(start, dtype=dtype), torch.tensor(0.5)
        for step in range(steps):
            pushed = pushed * (1 - 0.0019) + (0.2 if step % 100 == 0 else 0.0)
            trained = trained - 0.1 * pushed.float() * (pushed.float() * trained - 1)
        return pushed.item(), trained.item()

    grown, wild = run(1.0, 3000, torch.bfloat16)  # decay is below half a spacing: it is not there
    assert not abs(wild) < 10
    early = 100
    assert abs(run(1.0, 3000, torch.float32)[1]) < 2  # in fp32 from the start: calm
    assert abs(run(run(1.0, early, torch.bfloat16)[0], 3000, torch.float32)[1]) < 2  # and from early on
    assert not abs(run(grown, 100, torch.float32)[1]) < 10  # what bf16 let grow diverges in fp32, too

    weight = torch.tensor(0.01, dtype=torch.bfloat16)
    weights = torch.randn(1000).bfloat16().view(torch.int16)
    other = weights.clone()
    other[7] ^= 1 << 3
    assert weights.long().sum() != other.long().sum()  # one bit, and its checksum
    flipped = (weight.view(torch.int16) ^ (1 << 14)).view(torch.bfloat16).item()  # one bit, no error
    assert flipped > 1e30
    x, w = torch.randn(64, 64).bfloat16(), torch.randn(64, 64).bfloat16()
    assert torch.equal(x @ w, x @ w)  # a sound machine repeats itself, in the same order
    rows, to = torch.randn(4096, 8), torch.randint(4, (4096,))
    orders = torch.arange(4096), torch.randperm(4096)
    one, other = (torch.zeros(4, 8).index_add(0, to[order], rows[order]) for order in orders)
    assert not torch.equal(one, other)  # atomics leave the order to chance, and the machine is sound
    return {
        "logit": f"{logit:g}",
        "half_step": half_step,
        "ratio": f"{ratio:.0%}",
    }


def adopt_fp8() -> dict[str, object]:
    """Train a classifier in fp32 and in emulated FP8, from three seeds, by a rule stated before."""
    bound = 0.01
    images, labels = _digits(64)

    def trained(seed: int, eight_bits: bool) -> float:
        model = models.digits_classifier(32, seed=seed)
        if eight_bits:
            fp8.convert(model, "tensorwise", keep=())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(15):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        return loss.item()

    pairs = [(trained(seed, False), trained(seed, True)) for seed in range(3)]
    differences = [abs(small / wide - 1) for wide, small in pairs]
    spread = max(wide for wide, _ in pairs) / min(wide for wide, _ in pairs) - 1
    assert max(differences) < bound
    assert max(differences) < spread

    def cast(t: Tensor, dtype: torch.dtype) -> Tensor:
        scale = t.abs().max() / torch.finfo(dtype).max
        return (t / scale).to(dtype).float() * scale

    e4m3, e5m2 = torch.float8_e4m3fn, torch.float8_e5m2
    x, w, dy = torch.randn(128, 256), torch.randn(256, 256), torch.randn(128, 256)
    forward = formats.relative_error(cast(x, e4m3) @ cast(w, e4m3), x @ w)
    of_inputs = formats.relative_error(cast(dy, e5m2) @ cast(w, e4m3).T, dy @ w.T)
    of_weights = formats.relative_error(cast(x, e4m3).T @ cast(dy, e5m2), x.T @ dy)
    assert of_inputs > 1.3 * forward < of_weights  # so each of the three is worth a run of its own
    return {
        "bound": f"{bound:.0%}",
    }


def old_gpus() -> dict[str, object]:
    """Ask data sheets what old GPUs have, and how much room an activation leaves in fp16."""
    old = [measure.GPUS[name] for name in ("T4", "V100 SXM2 32 GB")]
    assert not any({"bf16", "tf32"} & set(gpu.flop_per_s) for gpu in old)
    factor = old[1].flop_per_s["fp16"] / old[1].flop_per_s["fp32"]
    assert abs(factor / (125 / 15.7) - 1) < 0.01  # its data sheet
    headroom = math.log2(torch.finfo(torch.float16).max / 1000)
    assert (torch.tensor(1000.0).half() * 2 ** int(headroom)).isfinite()
    assert (torch.tensor(1000.0).half() * 2 ** (int(headroom) + 2)).isinf()

    class Large(nn.Module):
        def __init__(self, island: bool) -> None:
            super().__init__()
            self.up, self.down, self.island = nn.Linear(8, 8), nn.Linear(8, 1), island

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.float16, enabled=not self.island):
                hidden = F.layer_norm(1e7 * self.up(x), (8,))
            return self.down(hidden)

    def trained(island: bool) -> list[torch.dtype]:
        """Return the dtypes of what was updated by three steps of fp16 autocast with a scaler."""
        model = Large(island)
        optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = (model(torch.ones(4, 8)) - 1).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        pairs = zip(model.parameters(), before, strict=True)
        return [new.dtype for new, old in pairs if not torch.equal(new, old)]

    assert trained(island=False) == []
    assert set(trained(island=True)) == {torch.float32}
    return {"factor": f"{factor:.0f}", "largest": 1000, "headroom": f"{headroom:.0f}"}


def resume() -> dict[str, object]:
    """Look for state beyond the weights, leave it out, and add gradients over another number of ranks."""
    converted = fp8.convert(nn.Sequential(nn.Linear(32, 32)), "delayed", keep=())
    assert any("amax" in name for name, _ in converted.named_buffers())
    assert any("amax" in name for name in converted.state_dict())

    class Extra(nn.Linear):
        """Keep a history as Transformer Engine does: among a module's state, and no buffer."""

        def get_extra_state(self) -> Tensor:
            return torch.ones(16)

    assert "_extra_state" in Extra(4, 4).state_dict()
    assert not list(Extra(4, 4).buffers())
    assert {"scale", "_growth_tracker"} <= set(torch.amp.GradScaler("cpu").state_dict())

    def next_step(moments: bool) -> float:
        """Return the size of the first step after a restart, of a run whose gradients had become small."""
        weight = nn.Parameter(torch.ones(()))
        optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
        for step in range(51):
            if step == 50 and not moments:
                optimizer = torch.optim.AdamW([weight], lr=0.1, weight_decay=0.0)
            before, weight.grad = weight.item(), torch.tensor(0.7**step)
            optimizer.step()
        return abs(weight.item() - before)

    assert next_step(moments=False) > 20 * next_step(moments=True)  # a jump
    gradients = torch.randn(64, 4096)
    eight = parallel.reduce(gradients.view(8, 8, -1).sum(1), torch.float32, op="sum")
    sixteen = parallel.reduce(gradients.view(16, 4, -1).sum(1), torch.float32, op="sum")
    different = (eight != sixteen).float().mean().item()
    error = formats.relative_error(eight, sixteen)
    assert different > 0.1
    assert error < 1e-5
    return {
        "before": 8,
        "after": 16,
    }


def numerics_tests() -> dict[str, object]:
    """Compare loops that are wrong with one that is right, by results, by dtypes and by what a step does."""
    images, labels = _digits(128)

    def trained(dtype: torch.dtype | None) -> tuple[Tensor, set[torch.dtype], set[torch.dtype]]:
        """Return the weights, the dtypes of a layer's output, and those of weights, gradients and state."""
        model, seen = models.digits_classifier(32), set()
        model.net[0].register_forward_hook(lambda module, args, output: seen.add(output.dtype))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        kept = [
            t for p in model.parameters() for t in (p, p.grad, *optimizer.state[p].values()) if t is not None
        ]
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        return weights, seen, {each.dtype for each in kept}

    (mixed, in_bf16, kept), (forgotten, in_fp32, _) = trained(torch.bfloat16), trained(None)
    difference = formats.relative_error(mixed, forgotten)
    assert difference < 0.01  # no tolerance that lets bf16 pass tells the two apart
    assert (in_bf16, in_fp32) == ({torch.bfloat16}, {torch.float32})
    assert kept == {torch.float32}

    def moved(optimizer_of: Any, unscales: bool) -> float:
        """Return how far a loop goes in one step that unscales, or is a mutant and does not."""
        weight = nn.Parameter(torch.zeros(()))
        optimizer, scaler = optimizer_of([weight], lr=1.0), torch.amp.GradScaler("cpu")
        scaler.scale(weight * 1.0).backward()
        (scaler if unscales else optimizer).step(*([optimizer] if unscales else []))
        return -weight.item()

    right, mutant = (moved(torch.optim.Adam, unscales) for unscales in (True, False))
    assert math.isclose(right, mutant, rel_tol=1e-6)  # Adam hides it
    right, mutant = (moved(torch.optim.SGD, unscales) for unscales in (True, False))
    assert mutant == 2**16 * right
    return {}


def loss_gap() -> dict[str, object]:
    """Minimise a noisy quadratic with bf16 weights, with fp32 ones, and with those for the last quarter."""
    steps = 400

    def train(switch: float) -> tuple[Tensor, Tensor]:
        """Return the losses, and the share of updates that was lost, at each step of a rate that decays."""
        noise = torch.Generator().manual_seed(0)
        target, weight = 1 + torch.rand(1000, generator=noise), torch.zeros(1000)
        losses, lost = torch.zeros(steps), torch.zeros(steps)
        for step in range(steps):
            rate = 0.1 - 0.099 * step / steps
            before, gradient = weight, weight - target + torch.randn(1000, generator=noise)
            weight = weight - rate * gradient
            if step < switch * steps:
                weight = weight.bfloat16().float()
            lost[step] = (weight == before).float().mean()
            losses[step] = (weight - target).square().mean()
        return losses, lost

    (bf16, lost), (fp32, _), (tail, _) = train(1.0), train(0.0), train(0.75)
    gap = bf16 / fp32 - 1
    assert gap[100:200].abs().mean() < 0.01
    assert gap[-10:].mean() > 0.05  # it opens late
    assert (lost[100:].view(6, 50).mean(1).diff() > 0).all()
    assert lost[-1] > 0.9  # so training longer, at this rate, moves hardly anything
    recovered = ((bf16 - tail) / (bf16 - fp32))[-1].item()
    assert recovered > 0.9
    return {}


def fit() -> dict[str, object]:
    """Put 7 billion parameters on eight GPUs of 80 GB, by each stage of sharding."""
    gpu = measure.GPUS["H100 SXM"]

    def held(stage: str) -> float:
        return parallel.memory_per_rank(7_000_000_000, 8, stage, "zero").total / 1e9

    usable = gpu.usable_bytes / 1e9
    assert held("ddp") == 7 * 16 > usable
    assert held("zero1") == 7 * (4 + 12 / 8)
    assert held("zero2") == 7 * (2 + 14 / 8)
    assert held("zero3") == 7 * 16 / 8
    assert usable > 2 * held("zero1") > held("zero2") > held("zero3")  # room for activations in all
    reduced, scattered, gathered = (
        parallel.sent_bytes(name, 14_000_000_000, 8)
        for name in ("all-reduce", "reduce-scatter", "all-gather")
    )
    assert scattered + gathered == reduced  # stage one sends no more than DDP
    eight_bits = fp8.convert(nn.Sequential(nn.Linear(64, 64, bias=False)), "tensorwise", keep=())
    assert {p.dtype for p in eight_bits.parameters()} == {torch.float32}  # FP8 changes nothing here
    # Bytes of a block in bf16 per token and unit of width, with fused attention: two norms, two masks of
    # dropout and the inputs of the two parts are whole in tensor parallelism, the others are divided
    norms, masks, inputs = 2 * 2, 2 * 1, 2 * 2
    attention, feed_forward = 3 * 2 + 2, 4 * 2 + 4 * 2
    whole, inside = norms + masks + inputs + attention + feed_forward, attention + feed_forward
    assert (whole, inside) == (34, 24)  # as in the paper's section 4
    tensor, both = whole - inside + inside / 8, whole / 8
    return {
        "whole": whole,
        "tensor": f"{tensor:g}",
        "both": f"{both:g}",
        "billions": 7,
        "ranks": 8,
        "ddp": f"{held('ddp'):.0f}",
        "zero1": f"{held('zero1'):g}",
        "zero2": f"{held('zero2'):g}",
        "zero3": f"{held('zero3'):g}",
    }


def monitor() -> dict[str, object]:
    """Watch a short fp16 run, and read off it what one would log."""
    images, labels = _digits(64)
    model = models.digits_classifier(16)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    largest: list[float] = []
    for each in model.modules():
        each.register_forward_hook(lambda module, args, output: largest.append(output.abs().max().item()))
    with audit.watch(model, every=1) as seen:
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(images), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    steps = seen.steps
    assert len(steps) == 4
    assert all(each.scale and each.loss for each in steps)
    made = [each for each in steps if each.happened]
    assert made
    assert all(each.gradient_norm and each.gradient_norm < 100 for each in made)  # of unscaled gradients
    for layer in seen.layers.values():
        assert layer.census is not None
        assert layer.census.fates.keys() >= {
            "underflowed",
            "normal",
        }  # each with its binades, up to the limit
        assert layer.lost_update_fraction is not None
    assert 0 < min(largest) < math.inf
    return {}


def migrate() -> dict[str, object]:
    """Record what autocast does to a transformer block, and compare a training with and without it."""
    block, inputs = models.transformer_block(32), torch.randn(2, 8, 32)
    ledger = autocast.record(block, inputs, dtype=torch.bfloat16)
    kinds = [row.output_dtype for row in ledger.rows]
    assert {torch.bfloat16, torch.float32} <= set(kinds)

    images, labels = _digits(256)

    def trained(enabled: bool) -> float:
        model = models.digits_classifier(32)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        for _ in range(20):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        return loss.item()

    assert abs(trained(True) / trained(False) - 1) < 0.02
    with autocast.cuda_rules(), torch.autocast("cpu", dtype=torch.bfloat16):
        try:
            refused = ""
            F.binary_cross_entropy(torch.full((2,), 0.5), torch.ones(2))
        except RuntimeError as error:
            refused = str(error)
    assert "unsafe to autocast" in refused
    assert (torch.tensor([1e-8, 1e-5]).half() == 0).tolist() == [True, False]  # a small epsilon
    in_bf16 = torch.zeros(()).bfloat16()
    for _ in range(300):
        in_bf16 += 1  # a running sum
    assert in_bf16 == 256
    return {}


def kernel_tolerance() -> dict[str, object]:
    """Hold sums against fp64, by length, by accumulator, by what errors are relative to; break kernels."""

    def product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
        """Multiply rows with rows, one term after the other; every partial sum is rounded to ``dtype``."""
        total = torch.zeros(len(a), dtype=dtype)
        for left, right in zip(a.float().unbind(1), b.float().unbind(1), strict=True):
            total = (total.float() + left * right).to(dtype)
        return total.float()

    def off(result: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """Return the errors against fp64 on these inputs, relative to the norm of what is added up."""
        terms = a.double() * b.double()
        return (result.double() - terms.sum(1)).abs() / terms.norm(dim=1)

    short, long = 64, 4096
    wide = torch.randn(512, long), torch.randn(512, long)
    a, b = (each.bfloat16() for each in wide)
    in_fp32 = product(a, b, torch.float32)
    error = off(in_fp32, a, b).mean().item()
    grown = error / off(product(a[:, :short], b[:, :short], torch.float32), a[:, :short], b[:, :short]).mean()
    assert 0.5 * (long / short) ** 0.5 < grown < 2 * (long / short) ** 0.5  # as the root of the length
    eps = torch.finfo(torch.float32).eps
    assert 0.05 < error / (eps * long**0.5) < 1
    exact = (a.double() * b.double()).sum(1)
    by_element = (in_fp32.double() / exact - 1).abs()
    assert by_element.max() > 20 * by_element.median()  # where terms cancel
    assert off(in_fp32, a, b).max() < 10 * error
    inputs = off(in_fp32, *wide).mean().item() / error
    assert inputs > 100  # rounding of the inputs is not the kernel's
    narrow = off(product(a, b, torch.bfloat16), a, b).mean().item() / off(in_fp32.bfloat16(), a, b).mean()
    assert narrow > 5  # both return bf16, and one adds up in it

    def without_tail(a: Tensor, b: Tensor) -> Tensor:
        whole = a.shape[1] // 16 * 16
        return (a[:, :whole] * b[:, :whole]).sum(1)

    for length, right in ((64, True), (65, False)):  # odd shapes
        a, b = torch.ones(4, length), torch.ones(4, length)
        assert torch.equal(without_tail(a, b), (a * b).sum(1)) == right
    flushed = F.threshold(ordinary := torch.tensor([0.5, 3.0]).half(), torch.finfo(torch.float16).tiny, 0)
    assert torch.equal(flushed, ordinary)
    assert (
        F.threshold(torch.tensor([1e-6]).half(), torch.finfo(torch.float16).tiny, 0) == 0 < 1e-6
    )  # subnormals
    assert [torch.tensor(x).half().square().isfinite().item() for x in (3.0, 300.0)] == [
        True,
        False,
    ]  # large ones
    # Of a norm backward: the gain's gradient is a sum over rows, whatever the width
    gains: dict[tuple[int, int], float] = {}
    for rows, width in ((64, 64), (4096, 64), (64, 1024)):
        x, upstream = torch.randn(rows, width), torch.randn(rows, width)
        gain = torch.ones(width, requires_grad=True)
        F.rms_norm(x, (width,), gain).backward(upstream)
        normed = F.rms_norm(x, (width,))
        assert gain.grad is not None
        assert torch.allclose(gain.grad, (upstream * normed).sum(0), rtol=1e-3, atol=1e-3)
        gains[rows, width] = (
            off(product(upstream.T, normed.T, torch.float32), upstream.T, normed.T).mean().item()
        )
        if rows == long:
            operands = upstream.T.bfloat16(), normed.T.bfloat16()
            in_bf16, rounded = (
                product(*operands, torch.bfloat16),
                product(*operands, torch.float32).bfloat16(),
            )
            worse = (off(in_bf16, *operands).mean() / off(rounded, *operands).mean()).item()
    assert 4 < gains[4096, 64] / gains[64, 64] < 16  # 64 times the rows: about 8
    assert 0.5 < gains[64, 1024] / gains[64, 64] < 2
    assert worse > 5
    return {}


def reproducible() -> dict[str, object]:
    """Repeat a run, restart it with and without random state, add in another order, ask for determinism."""
    rows, to = torch.randn(4096, 8), torch.randint(256, (4096,))
    order = torch.randperm(4096)
    here, there = (torch.zeros(256, 8).index_add(0, to[i], rows[i]) for i in (torch.arange(4096), order))
    differ = (here != there).float().mean().item()
    assert differ > 0.1

    def run(restart: bool, keep_random_state: bool = True) -> Tensor:
        """Train with dropout; in the middle save and load everything, or all but the random state."""
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            if restart and step == 3:
                saved = torch.get_rng_state()
                torch.manual_seed(0)  # as a new process begins
                if keep_random_state:
                    torch.set_rng_state(saved)
            optimizer.zero_grad()
            model(torch.ones(16, 8)).square().mean().backward()
            optimizer.step()
        return torch.cat([each.detach().flatten() for each in model.parameters()])

    whole = run(restart=False)
    assert torch.equal(whole, run(restart=False))
    assert torch.equal(whole, run(restart=True))
    assert not torch.equal(whole, run(restart=True, keep_random_state=False))
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True)
    try:
        refused = ""
        torch.zeros(4).put_(torch.tensor([1, 1]), torch.ones(2))  # which of the two is put last, is left open
    except RuntimeError as error:
        refused = str(error)
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    assert "does not have a deterministic implementation" in refused
    assert not torch.backends.cudnn.benchmark
    return {}
