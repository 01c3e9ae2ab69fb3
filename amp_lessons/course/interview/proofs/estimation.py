"""Calculations of the answers to be found on paper; what ``seed`` draws is what makes each one new."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import measure, parallel
from amp_lessons.course.interview.proofs.designs import _WIDE, _Block
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_MODELS = (0.3, 1.3, 3, 7, 13, 30)  # billions of parameters


def training_state(seed: int) -> None:
    """Add up weights, gradients and AdamW's state of a model under autocast."""
    billions = random.Random(seed).choice(_MODELS)
    memory = parallel.memory_per_rank(round(billions * 1e9), world_size=1, convention="fp32")
    each, value = parallel.CONVENTIONS["fp32"].bytes_per_parameter, memory.total / 1e9


def sharded_state(seed: int) -> None:
    """Count what a rank holds of a model in one of ZeRO's stages."""
    rng = random.Random(seed)
    billions, ranks = rng.choice(_MODELS[1:]), rng.choice([4, 8, 16, 64])
    stage = rng.choice(["zero1", "zero2", "zero3"])
    memory = parallel.memory_per_rank(round(billions * 1e9), ranks, stage, "zero")
    whole, split = {"zero1": (4, 12), "zero2": (2, 14), "zero3": (0, 16)}[stage]
    assert math.isclose(memory.bytes_per_parameter, whole + split / ranks, rel_tol=1e-6)
    value = memory.total / 1e9


def all_reduce_traffic(seed: int) -> None:
    """Count what a rank sends in one all-reduce of all gradients."""
    rng = random.Random(seed)
    billions, ranks, itemsize = rng.choice(_MODELS[:4]), rng.choice([4, 8, 16, 64]), rng.choice([2, 4])
    format, others = {2: "bf16", 4: "fp32"}[itemsize], ranks - 1
    gradients = billions * itemsize
    value = float(parallel.sent_bytes("all-reduce", round(gradients * 1e9), ranks)) / 1e9


def all_reduce_time(seed: int) -> None:
    """Divide what a rank sends by the bandwidth of its link."""
    rng = random.Random(seed)
    millions, ranks = rng.choice([110, 350, 760, 1500]), rng.choice([8, 16, 32])
    link = rng.choice([12.5, 25, 50])
    gigabytes = float(parallel.sent_bytes("all-reduce", millions * 1_000_000 * 4, ranks)) / 1e9
    value = 1e3 * gigabytes / link


def product_time(seed: int) -> None:
    """Divide the operations of a square matrix product by a data sheet's rate."""
    rng = random.Random(seed)
    size, precision = rng.choice([4096, 8192, 16384]), rng.choice(["tf32", "bf16"])
    gpu = measure.GPUS[rng.choice(["A100 SXM 80 GB", "H100 SXM"])]
    operations, rate = 2 * size**3, gpu.flop_per_s[precision] / 1e12
    moved = 3 * size**2 * measure.precision(precision).dtype.itemsize
    value = operations / rate / 1e9
    assert value > 2 * 1e3 * moved / gpu.bytes_per_s  # arithmetic is the bound, not memory


def addition_time(seed: int) -> None:
    """Divide the bytes that an elementwise addition moves by a data sheet's bandwidth."""
    rng = random.Random(seed)
    millions, name = rng.choice([16, 64, 256, 1024]), rng.choice(["fp32", "bf16"])
    gpu = measure.GPUS[rng.choice(["T4", "A100 SXM 80 GB", "H100 SXM"])]
    moved, bandwidth = 3 * millions * measure.precision(name).dtype.itemsize / 1e3, gpu.bytes_per_s / 1e9
    value = 1e3 * moved / bandwidth


def ridge_size(seed: int) -> None:
    """Find the square product whose intensity is a GPU's ridge point."""
    rng = random.Random(seed)
    gpu = measure.GPUS[rng.choice(["V100 SXM2 32 GB", "A100 SXM 80 GB", "H100 SXM", "L4", "RTX 4090"])]
    precision = rng.choice(sorted({"fp16", "bf16", "tf32"} & set(gpu.flop_per_s)))
    rate, bandwidth = gpu.flop_per_s[precision] / 1e12, gpu.bytes_per_s / 1e12
    itemsize = measure.precision(precision).dtype.itemsize
    ridge, factor = rate / bandwidth, 3 * itemsize / 2
    value = math.ceil(ridge * factor)


def training_days(seed: int) -> None:
    """Count six operations per parameter and token, and divide by what the GPUs do in practice."""
    rng = random.Random(seed)
    billions, tokens = rng.choice([1.3, 3, 7, 13]), rng.choice([20, 100, 300])
    gpus, share = rng.choice([8, 64, 256]), rng.choice([0.3, 0.4, 0.5])
    with FlopCounterMode(display=False) as counter:
        nn.Linear(64, 64, bias=False)(torch.randn(10, 64, requires_grad=True)).sum().backward()
    each = counter.get_total_flops() / (64 * 64 * 10)
    rate = gpus * measure.GPUS["H100 SXM"].flop_per_s["bf16"] * share / 1e15
    operations = each * billions * 1e9 * tokens * 1e9
    value = operations / (rate * 1e15) / 86_400


def quantized_weights(seed: int) -> None:
    """Count the bytes of a model's weights in a format with scales per block."""
    rng = random.Random(seed)
    billions, name = rng.choice(_MODELS[2:]), rng.choice(["mxfp8_e4m3", "mxfp4", "nvfp4"])
    format, called = BLOCK_FORMATS[name], name.removesuffix("_e4m3").upper()
    assert format.block_size is not None
    bits = format.element.bits + format.scale.bits / format.block_size
    value, bf16 = billions * bits / 8, billions * 2


def lost_update(seed: int) -> None:
    """Take half the distance between neighbours of a 16-bit weight."""
    rng = random.Random(seed)
    name, weight = rng.choice(["bf16", "fp16"]), rng.choice([0.02, 0.1, 0.7, 1.5, 3.0, 12.0])
    power, mantissa = math.floor(math.log2(weight)), FORMATS[name].mantissa_bits
    value = 2.0 ** (power - mantissa) / 2
    start = torch.tensor(weight).to(measure.precision(name).dtype)
    for sign in (1, -1):
        assert (start.float() + sign * 0.98 * value).to(start.dtype) == start
        assert (start.float() + sign * 1.02 * value).to(start.dtype) != start


def needed_scale(seed: int) -> None:
    """Find the smallest power of two that brings a gradient among fp16's normal numbers."""
    rng = random.Random(seed)
    exponent = rng.choice([-6, -7, -8, -9])
    digit = rng.choice([2, 3, 5, 8])
    gradient = float(f"{digit}e{exponent}")
    normal = torch.finfo(torch.float16).smallest_normal
    ratio = normal / gradient
    value = 2.0 ** math.ceil(math.log2(ratio))


def skipped_at_start(seed: int) -> None:
    """Halve GradScaler's first scale until it is one that a problem bears."""
    bears = 2 ** random.Random(seed).randrange(2, 15)
    start = torch.amp.GradScaler("cpu").get_scale()
    value = round(math.log2(start / bears))


def logit_bytes(seed: int) -> None:
    """Count the bytes of a language model's logits."""
    rng = random.Random(seed)
    batch, length = rng.choice([4, 8, 16]), rng.choice([1024, 2048, 4096])
    vocabulary = rng.choice([32_000, 128_256])
    name = rng.choice(["bf16", "fp32"])
    itemsize = measure.precision(name).dtype.itemsize
    value = batch * length * vocabulary * itemsize / 1e9


def block_activations(seed: int) -> None:
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
    inputs_and_projections, wide = 2 * (1 + 1 + 3 + 1 + 1 + 1), 2 * (_WIDE + _WIDE)
    low, heads = inputs_and_projections + wide, width // 128
    assert math.isclose(each, low, rel_tol=0.01)  # fused norms keep what is in bf16 alone
    value, times = each * tokens * width * layers / 1e9, _WIDE
    in_pieces = kept(128, 64, norm=torch.nn.RMSNorm)  # on a CPU, with fp32 numbers in between
    scores = 2 * heads * tokens**2 * layers / 1e9
    inputs = 2 * tokens * width * layers / 1e9
