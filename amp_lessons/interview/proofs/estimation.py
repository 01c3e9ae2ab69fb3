"""Calculations of the answers to be found on paper; what ``seed`` draws is what makes each one new."""

from __future__ import annotations

import random

from amp_lessons import measure, parallel


def training_state(seed: int) -> dict[str, object]:
    """Add up weights, gradients and AdamW's state of a model under autocast."""
    billions = random.Random(seed).choice([0.3, 1.3, 3, 7, 13, 30])
    memory = parallel.memory_per_rank(round(billions * 1e9), world_size=1, convention="fp32")
    each = parallel.CONVENTIONS["fp32"].bytes_per_parameter
    return {
        "billions": f"{billions:g}",
        "weights": each["weights"],
        "gradients": each["gradients"],
        "moments": each["Adam's moments"],
        "per_parameter": f"{memory.bytes_per_parameter:g}",
        "gigabytes": f"{memory.total / 1e9:.1f}",
        "value": memory.total / 1e9,
    }


def all_reduce_traffic(seed: int) -> dict[str, object]:
    """Count what a rank sends in one all-reduce of all gradients."""
    rng = random.Random(seed)
    billions, ranks, itemsize = rng.choice([0.3, 1.3, 3, 7]), rng.choice([4, 8, 16, 64]), rng.choice([2, 4])
    gradients = round(billions * 1e9) * itemsize
    sent = float(parallel.sent_bytes("all-reduce", gradients, ranks))
    return {
        "billions": f"{billions:g}",
        "ranks": ranks,
        "format": {2: "bf16", 4: "fp32"}[itemsize],
        "gradients": f"{gradients / 1e9:.1f}",
        "share": f"{ranks - 1}/{ranks}",
        "gigabytes": f"{sent / 1e9:.1f}",
        "value": sent / 1e9,
    }


def product_time(seed: int) -> dict[str, object]:
    """Divide the operations of a square matrix product by a data sheet's rate."""
    rng = random.Random(seed)
    size, precision = rng.choice([4096, 8192, 16384]), rng.choice(["tf32", "bf16"])
    gpu = measure.GPUS[rng.choice(["A100 SXM 80 GB", "H100 SXM"])]
    operations = 2 * size**3
    rate = gpu.attainable_flop_per_s(precision, measure.product_intensity(size, precision))
    return {
        "size": size,
        "precision": precision,
        "gpu": gpu.name,
        "operations": f"{operations:.2e}",
        "rate": f"{rate / 1e12:.0f}",
        "milliseconds": f"{1e3 * operations / rate:.2f}",
        "value": 1e3 * operations / rate,
    }
