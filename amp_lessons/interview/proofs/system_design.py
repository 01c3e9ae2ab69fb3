"""Proofs of the technical statements in answers about whole runs."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import audit, autocast, formats, fp8, measure, parallel
from amp_lessons.formats import FORMATS
from amp_lessons.material import data, models


def _digits(count: int) -> tuple[Tensor, Tensor]:
    train = data.digits().train
    return train.images[:count], train.labels[:count]


def halve_cost() -> dict[str, object]:
    """Compute what a faster product makes of a step, on an A100, from fp32 by TF32 to bf16."""
    rate = measure.GPUS["A100 SXM 80 GB"].flop_per_s
    share = 0.7  # of the step, in fp32

    def step(precision: str) -> float:
        return 1 - share + share * rate["fp32"] / rate[precision]

    tf32, bf16 = 1 / step("tf32"), 1 / step("bf16")
    assert tf32 > 2
    assert bf16 / tf32 < 1.3
    in_16_bits = step("bf16") - (1 - share) / 2  # at best: all that waits for memory moves half the bytes
    assert 1 / in_16_bits > 1.5 * bf16
    rest = (1 - share) / 2 / in_16_bits
    assert rest > 0.7
    return {
        "share": f"{share:.0%}",
        "tf32": f"{tf32:.1f}",
        "bf16": f"{bf16 / tf32:.1f}",
        "bf16_memory": f"{1 / in_16_bits / tf32:.1f}",
        "rest": f"{rest:.0%}",
    }


def diverged() -> dict[str, object]:
    """Show two mechanisms: Adam's step after a calm stretch, and softmax of large logits in bf16."""
    weight = nn.Parameter(torch.zeros(()))
    optimizer = torch.optim.Adam([weight], lr=1.0)
    for step in range(5000):
        weight.grad = torch.tensor(1e-6 if step < 4999 else 1.0)
        before = weight.item()
        optimizer.step()
    spike = abs(weight.item() - before)
    assert 3 < spike < 3.3  # (1 - 0.9) / sqrt(1 - 0.999)

    logit = 100.0
    half_step = FORMATS["bf16"].spacing(logit) / 2
    ratio = math.exp(half_step) - 1
    assert torch.tensor(logit + half_step).bfloat16() == logit  # a tie, rounded to even
    assert ratio > 0.2
    return {"spike": f"{spike:.1f}", "logit": f"{logit:g}", "half_step": half_step, "ratio": f"{ratio:.0%}"}


def adopt_fp8() -> dict[str, object]:
    """Train a classifier in fp32 and in emulated FP8, from three seeds, by a rule stated before."""
    bound = 0.05
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
    return {
        "bound": f"{bound:.0%}",
        "seeds": 3,
        "difference": f"{max(differences):.1%}",
        "spread": f"{spread:.0%}",
    }


def old_gpus() -> dict[str, object]:
    """Ask data sheets what old GPUs have, and how much room an activation leaves in fp16."""
    old = [measure.GPUS[name] for name in ("T4", "V100 SXM2 32 GB")]
    assert not any({"bf16", "tf32"} & set(gpu.flop_per_s) for gpu in old)
    factor = old[1].flop_per_s["fp16"] / old[1].flop_per_s["fp32"]
    assert factor > 5
    headroom = math.log2(torch.finfo(torch.float16).max / 1000)
    return {"factor": f"{factor:.0f}", "largest": 1000, "headroom": f"{headroom:.0f}"}


def resume() -> dict[str, object]:
    """Look for state beyond the weights, and add the same gradients over another number of ranks."""
    converted = fp8.convert(nn.Sequential(nn.Linear(32, 32)), "delayed", keep=())
    assert any("amax" in name for name in converted.state_dict())
    assert {"scale", "_growth_tracker"} <= set(torch.amp.GradScaler("cpu").state_dict())
    gradients = torch.randn(64, 4096)
    eight = parallel.reduce(gradients.view(8, 8, -1).sum(1), torch.float32, op="sum")
    sixteen = parallel.reduce(gradients.view(16, 4, -1).sum(1), torch.float32, op="sum")
    different = (eight != sixteen).float().mean().item()
    error = formats.relative_error(eight, sixteen)
    assert different > 0.1
    assert error < 1e-5
    return {"before": 8, "after": 16, "different": f"{different:.0%}", "error": f"{error:.0e}"}


def numerics_tests() -> dict[str, object]:
    """Compare a loop that forgot autocast with one that has it, by results and by dtypes."""
    images, labels = _digits(128)

    def trained(dtype: torch.dtype | None) -> tuple[Tensor, set[torch.dtype]]:
        model, seen = models.digits_classifier(32), set()
        model.net[0].register_forward_hook(lambda module, args, output: seen.add(output.dtype))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype is not None):
                loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in model.parameters()]), seen

    (mixed, in_bf16), (forgotten, in_fp32) = trained(torch.bfloat16), trained(None)
    difference = formats.relative_error(mixed, forgotten)
    assert difference < 0.01  # no tolerance that lets bf16 pass tells the two apart
    assert (in_bf16, in_fp32) == ({torch.bfloat16}, {torch.float32})
    return {"difference": "1 %", "steps": 5}


def loss_gap() -> dict[str, object]:
    """Minimise a quadratic with bf16 weights, with fp32 weights, and with fp32 ones for the last quarter."""
    torch.manual_seed(0)
    target = 1 + torch.rand(1000)

    def final(switch: float) -> float:
        weight, steps = torch.zeros(1000), 400
        for step in range(steps):
            weight = weight - 0.03 * (weight - target)
            if step < switch * steps:
                weight = weight.bfloat16().float()
        return (weight - target).square().mean().item()

    bf16, fp32, tail = final(1.0), final(0.0), final(0.75)
    assert bf16 > 100 * fp32
    recovered = (bf16 - tail) / (bf16 - fp32)
    assert recovered > 0.9
    return {"share": "quarter", "recovered": f"{recovered:.0%}"}


def fit() -> dict[str, object]:
    """Put 7 billion parameters on eight GPUs of 80 GB, by each stage of sharding."""
    gpu = measure.GPUS["H100 SXM"]

    def held(stage: str) -> float:
        return parallel.memory_per_rank(7_000_000_000, 8, stage, "zero").total / 1e9

    usable = gpu.usable_bytes / 1e9
    assert held("ddp") > usable > held("zero1")
    assert held("zero3") < 20
    return {
        "billions": 7,
        "ranks": 8,
        "ddp": f"{held('ddp'):.0f}",
        "zero1": f"{held('zero1'):.0f}",
        "zero2": f"{held('zero2'):.0f}",
        "zero3": f"{held('zero3'):.0f}",
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
    return {"steps": len(steps), "layers": len(seen.layers)}


def migrate() -> dict[str, object]:
    """Record what autocast does to a transformer block, and compare a training with and without it."""
    block, inputs = models.transformer_block(32), torch.randn(2, 8, 32)
    ledger = autocast.record(block, inputs, dtype=torch.bfloat16)
    kinds = [row.output_dtype for row in ledger.rows]
    assert {torch.bfloat16, torch.float32} <= set(kinds)
    lower = sum(kind == torch.bfloat16 for kind in kinds)

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
    return {"operations": len(kinds), "lower": lower, "steps": 20, "bound": "2 %"}
