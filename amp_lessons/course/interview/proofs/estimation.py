"""Calculations of the answers to be found on paper; what ``seed`` draws is what makes each one new."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import autocast, measure, parallel
from amp_lessons.course.interview.proofs.designs import _Block
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_MODELS = (0.3, 1.3, 3, 7, 13, 30)  # billions of parameters


def training_state(seed: int) -> dict[str, object]:
    """Add up weights, gradients and AdamW's state of a model under autocast, and weigh a small one's."""
    billions = random.Random(seed).choice(_MODELS)
    memory = parallel.memory_per_rank(round(billions * 1e9), world_size=1, convention="fp32")
    each = parallel.CONVENTIONS["fp32"].bytes_per_parameter

    def kept(mixed: bool) -> tuple[list[float], int]:
        """Make a step; return the bytes of weight, gradient and moments per parameter, and of activations."""
        layers: Any = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
        optimizer, saved = torch.optim.AdamW(layers.parameters()), []

        def keep(tensor: Tensor) -> Tensor:
            saved.append(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                output = layers(torch.randn(256, 64))
            output.float().sum().backward()
        optimizer.step()
        weight = layers[0].weight
        held = [weight, weight.grad, *(optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq"))]
        activations = sum(tensor.nbytes for tensor in saved if len(tensor) == 256)
        return [tensor.nbytes / weight.numel() for tensor in held], activations

    mixed, plain = kept(True), kept(False)
    moment = each["Adam's moments"] / 2
    assert mixed[0] == plain[0] == [each["weights"], each["gradients"], moment, moment]
    assert memory.bytes_per_parameter == sum(mixed[0])
    assert mixed[1] == plain[1] / 2 > 0  # what shrinks are the activations
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
    halves = [parallel.sent_bytes(name, gradients, ranks) for name in ("reduce-scatter", "all-gather")]
    assert math.isclose(sent, sum(halves))
    assert all(math.isclose(half, gradients * (ranks - 1) / ranks) for half in halves)
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
    millions, ranks, link = (
        rng.choice([110, 350, 760, 1500]),
        rng.choice([8, 16, 32]),
        rng.choice([12.5, 25, 50]),
    )
    sent = float(parallel.sent_bytes("all-reduce", millions * 1_000_000 * 4, ranks))
    assert math.isclose(sent, 2 * (ranks - 1) / ranks * 4e6 * millions)  # nearly twice the gradients
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
    with FlopCounterMode(display=False) as counter:
        torch.ones(8, 8) @ torch.ones(8, 8)
    assert counter.get_total_flops() == 2 * 8**3
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
    tensor = torch.empty(1000, dtype=measure.precision(name).dtype)
    moved = millions * 1e3 * sum(each.nbytes for each in (tensor, tensor, tensor + tensor))
    milliseconds = 1e3 * moved / gpu.bytes_per_s
    arithmetic = 1e3 * millions * 1e6 / gpu.flop_per_s["fp32"]  # without tensor cores
    assert milliseconds > 50 * arithmetic
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
    """Find the smallest square product whose intensity is above a GPU's ridge point."""
    rng = random.Random(seed)
    gpu = measure.GPUS[rng.choice(["V100 SXM2 32 GB", "A100 SXM 80 GB", "H100 SXM", "L4", "RTX 4090"])]
    precision = rng.choice(sorted({"fp16", "bf16", "tf32"} & set(gpu.flop_per_s)))
    rate, itemsize = gpu.flop_per_s[precision], measure.precision(precision).dtype.itemsize
    ridge = rate / gpu.bytes_per_s

    def seconds(rows: int, rate: float) -> float:
        """Return the time that the slower of arithmetic and memory takes."""
        return max(2 * rows**3 / rate, 3 * rows**2 * itemsize / gpu.bytes_per_s)

    size = next(n for n in range(1, 10_000) if 2 * n**3 / (3 * n**2 * itemsize) >= ridge)
    assert math.isclose(size, ridge * 3 * itemsize / 2, rel_tol=0.01)
    below, above = size // 2, 2 * size
    assert seconds(below, 2 * rate) == seconds(below, rate)  # faster tensor cores do not help
    assert seconds(above, 2 * rate) < seconds(above, rate)
    sizes = [3 * sheet.flop_per_s["fp16"] / sheet.bytes_per_s for sheet in measure.GPUS.values()]
    assert max(sizes) > 4 * min(sizes)
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
    layer = nn.Linear(64, 64, bias=False)

    def flop_of_a_weight_and_token(forward: Callable[[Tensor], Tensor]) -> float:
        with FlopCounterMode(display=False) as counter:
            forward(torch.randn(10, 64, requires_grad=True)).sum().backward()
        return counter.get_total_flops() / (64 * 64 * 10)

    each = flop_of_a_weight_and_token(layer)
    assert each == 6
    unit = nn.Sequential(layer, nn.GELU())  # which needs its input again
    recomputed = flop_of_a_weight_and_token(lambda x: checkpoint(unit, x, use_reentrant=False))
    assert math.isclose(recomputed, each * 4 / 3)  # a third more
    rate = measure.GPUS["H100 SXM"].flop_per_s["bf16"]
    assert math.isclose(measure.GPUS["H100 SXM"].flop_per_s["fp8_e4m3"], 2 * rate, rel_tol=0.001)
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
    element, scale, block = {"mxfp8_e4m3": (8, 8, 32), "mxfp4": (4, 8, 32), "nvfp4": (4, 8, 16)}[name]
    assert (format.element.bits, format.scale.bits, format.block_size) == (element, scale, block)
    bits = element + scale / block
    assert math.isclose(format.quantize(torch.randn(64, 1024 * 8)).bits_per_element, bits, rel_tol=1e-3)
    assert bits / 16 > 1 / 4  # of bf16, with four bits too
    gigabytes = billions * bits / 8
    return {
        "billions": f"{billions:g}",
        "format": {"mxfp8_e4m3": "MXFP8", "mxfp4": "MXFP4", "nvfp4": "NVFP4"}[name],
        "element": element,
        "scale": scale,
        "block": block,
        "bits": f"{bits:.2f}",
        "gigabytes": f"{gigabytes:.2f}",
        "bf16": f"{billions * 2:g}",
        "value": gigabytes,
    }


def lost_update(seed: int) -> dict[str, object]:
    """Take half the distance between neighbours of a 16-bit weight."""
    rng = random.Random(seed)
    name, weight = rng.choice(["bf16", "fp16"]), rng.choice([0.02, 0.1, 0.7, 1.5, 3.0, 12.0])
    dtype, format = measure.precision(name).dtype, FORMATS[name]
    power = math.floor(math.log2(weight))
    half = 2.0 ** (power - format.mantissa_bits) / 2
    start = torch.tensor(weight).to(dtype)
    for sign in (1, -1):
        assert (start.float() + sign * 0.98 * half).to(dtype) == start
        assert (start.float() + sign * 1.02 * half).to(dtype) != start
    told = torch.finfo(dtype)
    one = torch.ones((), dtype=dtype)
    assert one + told.eps / 2 == 1 < one + told.eps  # epsilon is the spacing at one: twice what is lost there
    assert told.smallest_normal * told.eps < half / 100  # the smallest number of the format is far below
    share = half / weight
    assert told.eps / 4 < share <= told.eps / 2  # for every weight, within a factor of two

    parameter = nn.Parameter(torch.tensor(weight))
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0)
    parameter.grad = torch.tensor(7.0)
    optimizer.step()
    assert math.isclose(abs(parameter.item() - weight), 1e-3, rel_tol=0.01)  # about the learning rate
    return {
        "format": name,
        "weight": weight,
        "power": power,
        "mantissa": format.mantissa_bits,
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
    assert gradient * scale >= normal > gradient * scale / 2

    def error(scale: float) -> float:
        """Return the relative error with which the gradient comes back."""
        return abs(torch.tensor(gradient * scale).half().item() / scale / gradient - 1)

    assert error(scale) <= 2**-11
    assert max(error(scale / 2**power) for power in range(1, 8)) > 2**-11  # subnormal: fewer bits
    assert error(scale / 2**7) < 1  # and yet it survives
    assert torch.amp.GradScaler("cpu").get_scale() >= scale
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
    scaler = torch.amp.GradScaler("cpu")
    start, backoff = scaler.get_scale(), scaler.get_backoff_factor()
    weight, skips = nn.Parameter(torch.ones(())), 0
    optimizer = torch.optim.SGD([weight], lr=1.0)
    while weight == 1:  # until the first step that is made
        optimizer.zero_grad()
        scaler.scale(weight * (1.0 if scaler.get_scale() <= bears else math.inf)).backward()
        scaler.step(optimizer)
        scaler.update()
        skips += bool(weight == 1)
    assert skips == math.log2(start / bears)
    assert backoff == 0.5
    return {"bears": bears, "start": f"{start:.0f}", "skips": skips, "value": skips}


def logit_bytes(seed: int) -> dict[str, object]:
    """Count the bytes of a language model's logits, and what a loss keeps of small ones."""
    rng = random.Random(seed)
    batch, length, vocabulary = (
        rng.choice([4, 8, 16]),
        rng.choice([1024, 2048, 4096]),
        rng.choice([32_000, 128_256]),
    )
    name = rng.choice(["bf16", "fp32"])
    dtype = measure.precision(name).dtype
    gigabytes = torch.empty(batch, length, vocabulary, dtype=dtype, device="meta").nbytes / 1e9

    logits, targets = torch.randn(6, 50).bfloat16().requires_grad_(), torch.arange(6)
    with autocast.region("cuda", torch.bfloat16):
        loss: Any = F.cross_entropy(logits, targets)
    cast = loss.grad_fn.next_functions[0][0]
    written, copy = cast.next_functions[0][0]._saved_result, loss.grad_fn._saved_self
    assert written.shape == copy.shape == logits.shape  # log-probabilities,
    assert (written.dtype, copy.dtype) == (torch.bfloat16, torch.float32)  # and what autocast made of them
    loss.backward()
    assert logits.grad is not None
    assert logits.grad.nbytes == logits.nbytes
    pairs = zip(logits.float().split(2), targets.split(2), strict=True)
    chunks = [F.cross_entropy(*pair, reduction="sum").detach() for pair in pairs]
    assert torch.isclose(torch.stack(chunks).sum() / len(targets), loss, rtol=0.01)
    return {
        "batch": batch,
        "length": length,
        "vocabulary": vocabulary,
        "format": name,
        "itemsize": dtype.itemsize,
        "gigabytes": f"{gigabytes:.2f}",
        "value": gigabytes,
    }


def block_activations(seed: int) -> dict[str, object]:
    """Count what a block keeps for the backward pass, per token and unit of width, and multiply."""
    rng = random.Random(seed)
    layers, width, tokens = (
        rng.choice([24, 32, 48, 80]),
        rng.choice([2048, 4096, 8192]),
        rng.choice([4096, 8192]),
    )

    def kept(width: int, tokens: int, **norm: Any) -> float:
        """Return the bytes per token and unit of width that autograd keeps of a block in bf16."""
        x = torch.randn(1, tokens, width, dtype=torch.bfloat16, requires_grad=True)
        return sum(measure.saved_activation_bytes(_Block(width, **norm).bfloat16(), x).values()) / x.numel()

    each = kept(128, 64)
    assert math.isclose(kept(256, 64), each, rel_tol=0.01)  # it grows with the width
    assert math.isclose(kept(128, 256), each, rel_tol=0.01)  # and with tokens, not with their square
    inputs_and_projections, wide = 2 * (1 + 1 + 3 + 1 + 1 + 1), 2 * (4 + 4)
    low = inputs_and_projections + wide

    def of_wide_layers(gated: bool) -> float:
        """Return the bytes per token and width that a feed-forward half keeps behind its norm's output."""
        x = torch.randn(64, 96, dtype=torch.bfloat16, requires_grad=True)
        inner = 256 if gated else 384  # as many weights
        up, gate = (nn.Linear(96, inner, bias=False, dtype=torch.bfloat16) for _ in range(2))
        down = nn.Linear(inner, 96, bias=False, dtype=torch.bfloat16)

        class Half(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.layers = nn.ModuleList([up, down, *([gate] if gated else [])])

            def forward(self, x: Tensor) -> Tensor:
                return down(F.silu(gate(x)) * up(x) if gated else F.gelu(up(x)))

        return sum(measure.saved_activation_bytes(Half(), x).values()) / x.numel() - 2  # the input's

    assert math.isclose(of_wide_layers(gated=False), wide, rel_tol=0.01)
    assert of_wide_layers(gated=True) > 1.2 * wide  # SwiGLU
    assert math.isclose(each, low, rel_tol=0.01)  # fused norms keep what is in bf16 alone
    in_pieces = kept(128, 64, norm=torch.nn.RMSNorm)  # as on a CPU, with fp32 numbers in between
    assert 1.2 * low < in_pieces < 1.5 * low
    scores, heads = torch.ones(8, 64, 64).bfloat16(), width // 128
    assert scores.nbytes == 2 * 8 * 64**2  # two bytes for each head and each pair of tokens
    gigabytes = each * tokens * width * layers / 1e9
    return {
        "layers": layers,
        "width": width,
        "tokens": tokens,
        "low": low,
        "times": _Block(8).up.out_features // 8,
        "kept": f"{in_pieces:.0f}",
        "gigabytes": f"{gigabytes:.0f}",
        "heads": heads,
        "scores": f"{2 * heads * tokens**2 * layers / 1e9:.0f}",
        "inputs": f"{2 * tokens * width * layers / 1e9:.1f}",
        "value": gigabytes,
    }
