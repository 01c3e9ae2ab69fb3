"""Calculations of the answers to be found on paper; what ``seed`` draws is what makes each one new."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import measure, parallel
from amp_lessons.course.interview.proofs.designs import _Block
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_MODELS = (0.3, 1.3, 3, 7, 13, 30)  # billions of parameters


def training_state(seed: int) -> dict[str, object]:
    """Add up weights, gradients and AdamW's state of a model under autocast."""
    billions = random.Random(seed).choice(_MODELS)
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


def sharded_state(seed: int) -> dict[str, object]:
    """Count what a rank holds of a model in one of ZeRO's stages."""
    rng = random.Random(seed)
    billions, ranks = rng.choice(_MODELS[1:]), rng.choice([4, 8, 16, 64])
    stage = rng.choice(["zero1", "zero2", "zero3"])
    memory = parallel.memory_per_rank(round(billions * 1e9), ranks, stage, "zero")
    whole, split = {"zero1": (4, 12), "zero2": (2, 14), "zero3": (0, 16)}[stage]
    assert math.isclose(memory.bytes_per_parameter, whole + split / ranks, rel_tol=1e-6)
    return {
        "billions": f"{billions:g}",
        "ranks": ranks,
        "stage": stage[-1],
        "whole": whole,
        "split": split,
        "per_parameter": f"{memory.bytes_per_parameter:.2f}",
        "gigabytes": f"{memory.total / 1e9:.1f}",
        "value": memory.total / 1e9,
    }


def all_reduce_traffic(seed: int) -> dict[str, object]:
    """Count what a rank sends in one all-reduce of all gradients."""
    rng = random.Random(seed)
    billions, ranks, itemsize = rng.choice(_MODELS[:4]), rng.choice([4, 8, 16, 64]), rng.choice([2, 4])
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


def all_reduce_time(seed: int) -> dict[str, object]:
    """Divide what a rank sends by the bandwidth of its link."""
    rng = random.Random(seed)
    millions, ranks = rng.choice([110, 350, 760, 1500]), rng.choice([8, 16, 32])
    link = rng.choice([12.5, 25, 50])
    sent = float(parallel.sent_bytes("all-reduce", millions * 1_000_000 * 4, ranks))
    milliseconds = 1e3 * sent / (link * 1e9)
    return {
        "millions": millions,
        "ranks": ranks,
        "link": f"{link:g}",
        "gigabytes": f"{sent / 1e9:.2f}",
        "milliseconds": f"{milliseconds:.0f}",
        "value": milliseconds,
    }


def product_time(seed: int) -> dict[str, object]:
    """Divide the operations of a square matrix product by a data sheet's rate."""
    rng = random.Random(seed)
    size, precision = rng.choice([4096, 8192, 16384]), rng.choice(["tf32", "bf16"])
    gpu = measure.GPUS[rng.choice(["A100 SXM 80 GB", "H100 SXM"])]
    operations, rate = 2 * size**3, gpu.flop_per_s[precision]
    moved = 3 * size**2 * measure.precision(precision).dtype.itemsize
    assert operations / rate > 2 * moved / gpu.bytes_per_s  # arithmetic is the bound, not memory
    return {
        "size": size,
        "precision": precision,
        "gpu": gpu.name,
        "operations": f"{operations:.2e}",
        "rate": f"{rate / 1e12:.0f}",
        "milliseconds": f"{1e3 * operations / rate:.2f}",
        "value": 1e3 * operations / rate,
    }


def addition_time(seed: int) -> dict[str, object]:
    """Divide the bytes that an elementwise addition moves by a data sheet's bandwidth."""
    rng = random.Random(seed)
    millions, name = rng.choice([16, 64, 256, 1024]), rng.choice(["fp32", "bf16"])
    gpu = measure.GPUS[rng.choice(["T4", "A100 SXM 80 GB", "H100 SXM"])]
    moved = 3 * millions * 1e6 * measure.precision(name).dtype.itemsize
    milliseconds = 1e3 * moved / gpu.bytes_per_s
    return {
        "millions": millions,
        "format": name,
        "gpu": gpu.name,
        "moved": f"{moved / 1e9:.2f}",
        "bandwidth": f"{gpu.bytes_per_s / 1e9:.0f}",
        "milliseconds": f"{milliseconds:.3f}",
        "value": milliseconds,
    }


def ridge_size(seed: int) -> dict[str, object]:
    """Find the square product whose intensity is a GPU's ridge point."""
    rng = random.Random(seed)
    gpu = measure.GPUS[rng.choice(["V100 SXM2 32 GB", "A100 SXM 80 GB", "H100 SXM", "L4", "RTX 4090"])]
    precision = rng.choice(sorted({"fp16", "bf16", "tf32"} & set(gpu.flop_per_s)))
    rate, itemsize = gpu.flop_per_s[precision], measure.precision(precision).dtype.itemsize
    ridge = rate / gpu.bytes_per_s
    size = math.ceil(ridge * 3 * itemsize / 2)
    return {
        "gpu": gpu.name,
        "precision": precision,
        "rate": f"{rate / 1e12:.0f}",
        "bandwidth": f"{gpu.bytes_per_s / 1e12:.2f}",
        "ridge": f"{ridge:.0f}",
        "itemsize": itemsize,
        "factor": f"{3 * itemsize / 2:g}",
        "size": size,
        "value": size,
    }


def training_days(seed: int) -> dict[str, object]:
    """Count six operations per parameter and token, and divide by what the GPUs do in practice."""
    rng = random.Random(seed)
    billions, tokens = rng.choice([1.3, 3, 7, 13]), rng.choice([20, 100, 300])
    gpus, share = rng.choice([8, 64, 256]), rng.choice([0.3, 0.4, 0.5])
    with FlopCounterMode(display=False) as counter:
        nn.Linear(64, 64, bias=False)(torch.randn(10, 64, requires_grad=True)).sum().backward()
    each = counter.get_total_flops() / (64 * 64 * 10)
    rate = measure.GPUS["H100 SXM"].flop_per_s["bf16"]
    operations = each * billions * 1e9 * tokens * 1e9
    days = operations / (gpus * rate * share) / 86_400
    return {
        "billions": f"{billions:g}",
        "tokens": tokens,
        "gpus": gpus,
        "share": f"{share:.0%}",
        "each": f"{each:g}",
        "operations": f"{operations:.1e}",
        "rate": f"{gpus * rate * share / 1e15:.2g}",
        "days": f"{days:.2g}",
        "value": days,
    }


def quantized_weights(seed: int) -> dict[str, object]:
    """Count the bytes of a model's weights in a format with scales per block."""
    rng = random.Random(seed)
    billions, name = rng.choice(_MODELS[2:]), rng.choice(["mxfp8_e4m3", "mxfp4", "nvfp4"])
    format = BLOCK_FORMATS[name]
    assert format.block_size is not None
    bits = format.element.bits + format.scale.bits / format.block_size
    gigabytes = billions * bits / 8
    return {
        "billions": f"{billions:g}",
        "format": {"mxfp8_e4m3": "MXFP8", "mxfp4": "MXFP4", "nvfp4": "NVFP4"}[name],
        "element": format.element.bits,
        "scale": format.scale.bits,
        "block": format.block_size,
        "bits": f"{bits:.2f}",
        "gigabytes": f"{gigabytes:.2f}",
        "bf16": f"{billions * 2:g}",
        "value": gigabytes,
    }


def lost_update(seed: int) -> dict[str, object]:
    """Take half the distance between neighbours of a 16-bit weight."""
    rng = random.Random(seed)
    name, weight = rng.choice(["bf16", "fp16"]), rng.choice([0.02, 0.1, 0.7, 1.5, 3.0, 12.0])
    power, mantissa = math.floor(math.log2(weight)), FORMATS[name].mantissa_bits
    half = 2.0 ** (power - mantissa) / 2
    start = torch.tensor(weight).to(measure.precision(name).dtype)
    for sign in (1, -1):
        assert (start.float() + sign * 0.98 * half).to(start.dtype) == start
        assert (start.float() + sign * 1.02 * half).to(start.dtype) != start
    return {
        "format": name,
        "weight": weight,
        "power": power,
        "mantissa": mantissa,
        "half": f"{half:.2g}",
        "value": half,
    }


def needed_scale(seed: int) -> dict[str, object]:
    """Find the smallest power of two that brings a gradient among fp16's normal numbers."""
    rng = random.Random(seed)
    exponent = rng.choice([-6, -7, -8, -9])
    digit = rng.choice([2, 3, 5, 8])
    gradient = float(f"{digit}e{exponent}")
    normal = torch.finfo(torch.float16).smallest_normal
    scale = 2.0 ** math.ceil(math.log2(normal / gradient))
    return {
        "gradient": f"{gradient:.0e}",
        "normal": f"{normal:.1e}",
        "ratio": f"{normal / gradient:.0f}",
        "scale": f"{scale:.0f}",
        "value": scale,
    }


def skipped_at_start(seed: int) -> dict[str, object]:
    """Halve GradScaler's first scale until it is one that a problem bears."""
    bears = 2 ** random.Random(seed).randrange(2, 15)
    start = torch.amp.GradScaler("cpu").get_scale()
    skips = round(math.log2(start / bears))
    return {"bears": bears, "start": f"{start:.0f}", "skips": skips, "value": skips}


def logit_bytes(seed: int) -> dict[str, object]:
    """Count the bytes of a language model's logits."""
    rng = random.Random(seed)
    batch, length = rng.choice([4, 8, 16]), rng.choice([1024, 2048, 4096])
    vocabulary = rng.choice([32_000, 128_256])
    name = rng.choice(["bf16", "fp32"])
    itemsize = measure.precision(name).dtype.itemsize
    gigabytes = batch * length * vocabulary * itemsize / 1e9
    return {
        "batch": batch,
        "length": length,
        "vocabulary": vocabulary,
        "format": name,
        "itemsize": itemsize,
        "gigabytes": f"{gigabytes:.2f}",
        "value": gigabytes,
    }


def block_activations(seed: int) -> dict[str, object]:
    """Count what a block keeps for the backward pass, per token and unit of width, and multiply."""
    rng = random.Random(seed)
    layers, width = rng.choice([24, 32, 48, 80]), rng.choice([2048, 4096, 8192])
    tokens = rng.choice([4096, 8192])

    def kept(width: int, tokens: int, **norm: Any) -> float:
        """Return the bytes per token and unit of width that autograd keeps of a block in bf16."""
        x = torch.randn(1, tokens, width, dtype=torch.bfloat16, requires_grad=True)
        return sum(measure.saved_activation_bytes(_Block(width, **norm).bfloat16(), x).values()) / x.numel()

    each = kept(128, 64)
    assert math.isclose(kept(128, 256), each, rel_tol=0.01)  # it grows with tokens, not with their square
    inputs_and_projections, wide = 2 * (1 + 1 + 3 + 1 + 1 + 1), 2 * (4 + 4)
    low, heads = inputs_and_projections + wide, width // 128
    assert math.isclose(each, low, rel_tol=0.01)  # fused norms keep what is in bf16 alone
    gigabytes = each * tokens * width * layers / 1e9
    return {
        "layers": layers,
        "width": width,
        "tokens": tokens,
        "low": low,
        "times": _Block(8).up.out_features // 8,
        "kept": f"{kept(128, 64, norm=torch.nn.RMSNorm):.0f}",  # on a CPU, with fp32 numbers in between
        "gigabytes": f"{gigabytes:.0f}",
        "heads": heads,
        "scores": f"{2 * heads * tokens**2 * layers / 1e9:.0f}",
        "inputs": f"{2 * tokens * width * layers / 1e9:.1f}",
        "value": gigabytes,
    }
