"""Proofs of the technical statements in answers about whole runs."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit, autocast, formats, fp8, measure, parallel
from amp_lessons.course.interview.proofs.loss_scaling import _scaler, _step, forgotten_unscale
from amp_lessons.course.material import data, models
from amp_lessons.formats import FORMATS


def _digits(count: int) -> tuple[Tensor, Tensor]:
    train = data.digits().train
    return train.images[:count], train.labels[:count]


def _fitted(model: nn.Module, count: int, steps: int, mixed: bool = False, **settings: Any) -> float:
    """Fit a classifier to so many digits by SGD, perhaps under bf16 autocast; return the last loss."""
    (images, labels), optimizer = _digits(count), torch.optim.SGD(model.parameters(), **settings)
    for _ in range(steps):
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            loss = F.cross_entropy(model(images), labels)
        _step(optimizer, loss)
    return loss.item()


def halve_cost() -> None:
    """Compute what a faster product makes of a step, on an A100, from fp32 by TF32 to bf16."""
    rate = measure.GPUS["A100 SXM 80 GB"].flop_per_s
    share = 0.7  # of the step, in fp32

    def step(precision: str) -> float:
        return 1 - share + share * rate["fp32"] / rate[precision]

    in_16_bits = step("bf16") - (1 - share) / 2  # at best: all that waits for memory moves half the bytes
    assert (1 - share) / 2 / in_16_bits > 0.7  # of the step, and more where less waits for memory
    tf32, bf16, bf16_memory = 1 / step("tf32"), step("tf32") / step("bf16"), step("tf32") / in_16_bits


def diverged() -> None:
    """Round a large logit to bf16; and let a weight grow that lost its decay, then replay in fp32."""
    logit = 100.0
    half_step = FORMATS["bf16"].spacing(logit) / 2
    assert torch.tensor(logit + half_step).bfloat16() == logit  # a tie, rounded to even

    def run(start: float, steps: int, dtype: torch.dtype) -> tuple[float, float]:
        """Train a weight of 1 behind one that decays and is rarely pushed; return both, in fp32."""
        pushed, trained = torch.tensor(start, dtype=dtype), torch.tensor(0.5)
        for step in range(steps):
            pushed = pushed * (1 - 0.0019) + (0.2 if step % 100 == 0 else 0.0)
            trained = trained - 0.1 * pushed.float() * (pushed.float() * trained - 1)
        return pushed.item(), trained.item()

    grown, wild = run(1.0, 3000, torch.bfloat16)  # decay is below half a spacing: it is not there
    assert not abs(wild) < 10
    assert abs(run(1.0, 3000, torch.float32)[1]) < 2  # in fp32 from the start: calm
    assert not abs(run(grown, 100, torch.float32)[1]) < 10  # what bf16 let grow diverges in fp32, too
    ratio = math.exp(half_step) - 1


def adopt_fp8() -> None:
    """Train a classifier in fp32 and in emulated FP8, from three seeds, by a rule stated before."""

    def trained(seed: int, eight_bits: bool) -> float:
        model = models.digits_classifier(32, seed=seed)
        if eight_bits:
            fp8.convert(model, "tensorwise", keep=())
        return _fitted(model, 64, 15, lr=0.3)

    wide, small = ([trained(seed, eight_bits) for seed in range(3)] for eight_bits in (False, True))
    differences = [abs(low / high - 1) for high, low in zip(wide, small, strict=True)]
    assert max(differences) < max(wide) / min(wide) - 1  # less than seeds do


def old_gpus() -> None:
    """Ask a data sheet what a V100 has, and how much room an activation leaves in fp16."""
    rate = measure.GPUS["V100 SXM2 32 GB"].flop_per_s
    assert not {"bf16", "tf32"} & set(rate)
    largest = 1000
    headroom = math.log2(torch.finfo(torch.float16).max / largest)
    factor = rate["fp16"] / rate["fp32"]


def resume() -> None:
    """Look for state beyond the weights, and add gradients over another number of ranks."""
    converted = fp8.convert(nn.Sequential(nn.Linear(32, 32)), "delayed", keep=())
    assert any("amax" in name for name in converted.state_dict())
    gradients, before, after = torch.randn(64, 4096), 8, 16
    eight, sixteen = (
        parallel.reduce(gradients.view(ranks, 64 // ranks, -1).sum(1), torch.float32, op="sum")
        for ranks in (before, after)
    )
    assert (eight != sixteen).float().mean() > 0.1
    assert formats.relative_error(eight, sixteen) < 1e-5


def numerics_tests() -> None:
    """Compare loops that are wrong with one that is right, by results, by dtypes and by what a step does."""

    def trained(autocast_on: bool) -> tuple[Tensor, set[torch.dtype]]:
        """Return the weights, and the dtypes of a layer's output."""
        model, seen = models.digits_classifier(32), set()
        model.net[0].register_forward_hook(lambda module, args, output: seen.add(output.dtype))
        _fitted(model, 128, 5, autocast_on, lr=0.1, momentum=0.1)
        return torch.cat([p.detach().flatten() for p in model.parameters()]), seen

    (mixed, in_bf16), (forgotten, in_fp32) = trained(True), trained(False)
    assert formats.relative_error(mixed, forgotten) < 0.01  # bf16's tolerance does not tell the two apart
    assert (in_bf16, in_fp32) == ({torch.bfloat16}, {torch.float32})
    forgotten_unscale()  # a mutant that does not unscale steps like the right loop with Adam, not with SGD


def loss_gap() -> None:
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
    assert gap[100:200].abs().mean() < 0.01 < 0.05 < gap[-10:].mean()  # it opens late
    assert (lost[100:].view(6, 50).mean(1).diff() > 0).all()
    assert ((bf16 - tail) / (bf16 - fp32))[-1] > 0.9  # recovered by the last quarter in fp32


def fit() -> None:
    """Put 7 billion parameters on eight GPUs of 80 GB, by each stage of sharding."""
    billions, ranks = 7, 8
    held = {
        stage: parallel.memory_per_rank(billions * 10**9, ranks, stage, "zero").total / 1e9
        for stage in ("ddp", "zero1", "zero2", "zero3")
    }
    assert held["ddp"] > 80 > 2 * held["zero3"] < 2 * held["zero1"]  # room for activations in all
    # Bytes of a block in bf16 per token and unit of width, with fused attention: two norms, two masks of
    # dropout and the inputs of the two parts are whole in tensor parallelism, the others are divided
    norms, masks, inputs = 2 * 2, 2 * 1, 2 * 2
    attention, feed_forward = 3 * 2 + 2, 4 * 2 + 4 * 2
    whole, inside = norms + masks + inputs + attention + feed_forward, attention + feed_forward
    assert (whole, inside) == (34, 24)  # as in the paper's section 4
    tensor, both = whole - inside + inside / ranks, whole / ranks


def monitor() -> None:
    """Watch a short fp16 run, and read off it what one would log."""
    images, labels = _digits(64)
    model = models.digits_classifier(16)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), _scaler()
    with audit.watch(model, every=1) as seen:
        for _ in range(4):
            with torch.autocast("cpu", torch.float16):
                loss = F.cross_entropy(model(images), labels)
            _step(optimizer, loss, scaler)
    made = [each for each in seen.steps if each.happened]
    assert all(each.scale and each.gradient_norm and each.gradient_norm < 100 for each in made)  # unscaled
    assert all(layer.census and layer.lost_update_fraction is not None for layer in seen.layers.values())


def migrate() -> None:
    """Record what autocast does to a transformer block, and compare a training with and without it."""
    ledger = autocast.record(models.transformer_block(32), torch.randn(2, 8, 32), dtype=torch.bfloat16)
    assert {torch.bfloat16, torch.float32} <= {row.output_dtype for row in ledger.rows}
    mixed, fp32 = (_fitted(models.digits_classifier(32), 256, 20, each, lr=0.5) for each in (True, False))
    assert abs(mixed / fp32 - 1) < 0.02


def kernel_tolerance() -> None:
    """Hold sums against fp64, by length, by accumulator, and by what errors are relative to."""

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
    error = off(in_fp32, a, b).mean()
    grown = error / off(product(a[:, :short], b[:, :short], torch.float32), a[:, :short], b[:, :short]).mean()
    assert 0.5 * (long / short) ** 0.5 < grown < 2 * (long / short) ** 0.5  # as the root of the length
    by_element = (in_fp32.double() / (a.double() * b.double()).sum(1) - 1).abs()
    assert by_element.max() > 20 * by_element.median()  # where terms cancel
    assert off(in_fp32, a, b).max() < 10 * error
    assert off(in_fp32, *wide).mean() > 100 * error  # rounding of the inputs is not the kernel's
    narrow = off(product(a, b, torch.bfloat16), a, b).mean()
    assert narrow > 5 * off(in_fp32.bfloat16(), a, b).mean()  # both return bf16, and one adds up in it


def reproducible() -> None:
    """Add in another order; restart a run with and without its random state."""
    rows, to, order = torch.randn(4096, 8), torch.randint(256, (4096,)), torch.randperm(4096)
    here, there = (torch.zeros(256, 8).index_add(0, to[i], rows[i]) for i in (torch.arange(4096), order))
    assert (here != there).float().mean() > 0.1

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

    assert torch.equal(run(restart=False), run(restart=True))
    assert not torch.equal(run(restart=False), run(restart=True, keep_random_state=False))
