"""Proofs of the answers about speed and memory: computed, for no GPU is needed to count bytes."""

from __future__ import annotations

import inspect
import math
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from amp_lessons import autocast, measure, parallel
from amp_lessons.formats import FORMATS

_H100, _V100 = measure.GPUS["H100 SXM"], measure.GPUS["V100 SXM2 32 GB"]


def _perceptron(width: int = 1024, depth: int = 4) -> nn.Sequential:
    blocks = ((nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(depth))
    return nn.Sequential(*(layer for block in blocks for layer in block), nn.Linear(width, 10))


def bytes_per_parameter() -> dict[str, object]:
    """Predict what weights, gradients and AdamW's state take, in fp32 and under autocast."""
    model, inputs = nn.Linear(1000, 1000, bias=False), torch.randn(1, 1000)
    parameters = 1000 * 1000

    def state(precision: str) -> list[float]:
        found = measure.predict_memory(model, inputs, precision_name=precision)
        parts = (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes)
        return [part / parameters for part in parts]

    assert state("fp32") == state("bf16") == [4, 4, 8]
    pure = measure.predict_memory(nn.Linear(1000, 1000, bias=False).bfloat16(), inputs.bfloat16())
    halved = (pure.parameter_bytes + pure.gradient_bytes + pure.optimizer_bytes) / parameters
    assert halved == sum(state("fp32")) / 2
    weights, gradients, moments = state("bf16")
    total = weights + gradients + moments
    return {
        "weights": f"{weights:g}",
        "gradients": f"{gradients:g}",
        "moments": f"{moments:g}",
        "total": f"{total:g}",
        "pure": f"{halved:g}",
        "zero": parallel.CONVENTIONS["megatron bf16"].total,
    }


def activations() -> dict[str, object]:
    """Count what autograd saves of a network with norms, in fp32 and under CUDA's bf16 autocast."""
    with autocast.fake_tensors():  # sizes without values
        model, inputs = _perceptron(), torch.empty(4096, 1024)
    fp32 = sum(measure.saved_activation_bytes(model, inputs).values())
    mixed = measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16)
    share = sum(mixed.values()) / fp32
    still = mixed[torch.float32] / sum(mixed.values())
    assert 0.5 < share < 0.95
    assert still > 0.2  # layer norm saves its fp32 input
    return {"share": f"{share:.0%}", "still": f"{still:.0%}"}


def roofline() -> dict[str, object]:
    """Compare an H100's ridge point with what a product and an addition do per byte."""
    ridge = _H100.ridge_point("bf16")
    size = next(n for n in range(64, 4096, 2) if measure.product_intensity(n, "bf16") > ridge)
    assert abs(size / 3 / ridge - 1) < 0.01  # n / 3 FLOP per byte in 16 bits
    assert measure.product_intensity(size - 2, "bf16") <= ridge
    adding = 1 / (3 * torch.bfloat16.itemsize)  # two numbers read, one written
    share = _H100.attainable_flop_per_s("bf16", adding) / _H100.flop_per_s["bf16"]
    assert share < 0.001
    return {"ridge": f"{ridge:.0f}", "size": size, "adding": f"{adding:.2f}", "share": f"{share:.2%}"}


def multiples() -> dict[str, object]:
    """Count the elements in 16 bytes, and what padding a vocabulary of GPT-2 costs."""
    aligned = 16  # bytes
    half, eight = aligned // torch.float16.itemsize, aligned // torch.float8_e4m3fn.itemsize
    vocabulary = 50_257
    assert vocabulary % half
    padded = -(-vocabulary // 64) * 64
    assert padded % half == 0
    return {
        "bytes": aligned,
        "half": half,
        "eight": eight,
        "vocabulary": vocabulary,
        "padded": padded,
        "cost": f"{padded / vocabulary - 1:.2%}",
    }


def why_slower() -> dict[str, object]:
    """Count the casts that autocast adds to a small model, and the rates that a V100 has."""
    ledger = autocast.record(_perceptron(16, depth=4), torch.randn(8, 16), dtype=torch.bfloat16)
    rows = len(ledger.rows)
    casts = sum(len(row.casts) for row in ledger.rows)
    assert casts > rows / 2
    assert "bf16" not in _V100.flop_per_s
    assert "fp16" in _V100.flop_per_s
    return {"operations": rows, "casts": casts}


def timing() -> dict[str, object]:
    """Time work that is queued, as a GPU's is, without waiting for it and with; a thread stands in for it."""
    with ThreadPoolExecutor(1) as queue:
        started = time.perf_counter()
        work = queue.submit(time.sleep, 0.2)
        launched = time.perf_counter() - started
        work.result()  # what torch.cuda.synchronize() does
        finished = time.perf_counter() - started
    assert finished >= 0.2
    assert launched < finished / 2
    return {"work": "200 ms", "share": "half"}


def why_no_memory() -> dict[str, object]:
    """Predict the peak of the same model with a tiny and with a large batch, in fp32 and in bf16."""

    def saved(batch: int) -> float:
        with autocast.fake_tensors():  # sizes without values
            model, inputs = _perceptron(), torch.empty(batch, 1024)
        fp32, mixed = (measure.predict_memory(model, inputs, precision_name=p) for p in ("fp32", "bf16"))
        return 1 - mixed.peak_bytes / fp32.peak_bytes

    tiny, large = saved(8), saved(32768)
    assert abs(tiny) < 0.01
    assert large > 0.15
    return {"small": 8, "batch": 32768, "tiny": "1 %", "large": f"{large:.0%}"}


def bf16_supported() -> dict[str, object]:
    """Ask what `is_bf16_supported` takes for support."""
    default = inspect.signature(torch.cuda.is_bf16_supported).parameters["including_emulation"].default
    assert default is True
    assert "bf16" not in _V100.flop_per_s
    assert "bf16" not in measure.GPUS["T4"].flop_per_s
    return {"default": default, "capability": "(8, 0)"}


def fair_baseline() -> dict[str, object]:
    """Compare bf16's promised rate on an H100 with fp32's, and with TF32's."""
    rate = _H100.flop_per_s
    plain, tensor_cores = rate["bf16"] / rate["fp32"], rate["bf16"] / rate["tf32"]
    assert plain > 10
    assert 1.9 < tensor_cores < 2.1
    return {"plain": f"{plain:.0f}", "tensor_cores": f"{tensor_cores:.0f}"}


def amdahl() -> dict[str, object]:
    """Make products of a step faster and the rest not."""

    def speed_up(share: float, factor: float) -> float:
        return 1 / (1 - share + share / factor)

    half, most = speed_up(0.5, 8), speed_up(0.9, 8)
    limit = 1 / (1 - 0.5)
    assert math.isclose(half, 16 / (8 / 8 + 8))  # of sixteen hours eight are products, and become one
    assert speed_up(0.5, 1e9) < limit
    return {
        "factor": 8,
        "share": "50 %",
        "half": f"{half:.1f}",
        "limit": f"{limit:.0f}",
        "larger": "90 %",
        "most": f"{most:.1f}",
    }


def checkpointing() -> dict[str, object]:
    """Count what autograd saves of a network whose blocks are recomputed, beside plain bf16."""

    class Recomputed(nn.Module):
        def __init__(self, body: nn.Sequential, depth: int) -> None:
            super().__init__()
            self.body, self.depth = body, depth

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(0, 3 * self.depth, 6):  # two blocks at a time
                x = checkpoint(self.body[i : i + 6], x, use_reentrant=False)
            return self.body[-1](x)

    model, inputs = _perceptron(128), torch.randn(1024, 128)
    plain = sum(measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16).values())
    recomputed = sum(
        measure.saved_activation_bytes(Recomputed(model, 4), inputs, dtype=torch.bfloat16).values()
    )
    assert recomputed < 0.5 * plain

    def gradients(network: nn.Module) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = network(inputs).square().mean()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    same = map(torch.equal, gradients(model), gradients(Recomputed(model, 4)))
    assert all(same)  # backward runs outside autocast; what is recomputed does not
    # a step is a forward and a backward of about twice its work: recomputing adds one forward more
    return {"share": f"{recomputed / plain:.0%}", "more": f"{1 / 3:.0%}"}


def optimizer_memory() -> dict[str, object]:
    """Count the bytes of optimizer state per parameter, and what eight bits or sharding would leave."""
    parameters = [torch.empty(1000, 1000)]
    adamw = measure.optimizer_bytes(torch.optim.AdamW, [p.requires_grad_() for p in parameters]).state / 1e6
    sgd = measure.optimizer_bytes(measure.OPTIMIZERS["SGD with momentum"], parameters).state / 1e6
    assert (adamw, sgd) == (8, 4)
    eight_bits = adamw * FORMATS["fp8_e4m3"].bits / FORMATS["fp32"].bits
    assert eight_bits == 2 * torch.float8_e4m3fn.itemsize  # two moments
    sharded = parallel.memory_per_rank(1_000_000_000, 8, "zero1", "fp32").held["Adam's moments"] / 1e9
    assert sharded == adamw / 8

    def settled(beta2: float, square: float) -> float:
        """Return where a bf16 second moment ends that begins at one and should come to ``square``."""
        moment, target = (torch.full((), value, dtype=torch.bfloat16) for value in (1.0, square))
        for _ in range(1000):
            moment.lerp_(target, 1 - beta2)
        return moment.item()

    slow, fast = 0.999, 0.95
    assert slow == inspect.signature(torch.optim.AdamW).parameters["betas"].default[1]
    assert settled(slow, 2.25) == settled(slow, 0.25) == 1  # it neither rises nor falls
    off = max(abs(settled(fast, square) / square - 1) for square in (2.25, 0.25))
    assert off < 0.1
    return {
        "adamw": f"{adamw:g}",
        "sgd": f"{sgd:g}",
        "eight_bits": f"{eight_bits:g}",
        "ranks": 8,
        "sharded": f"{sharded:g}",
        "slow": slow,
        "fast": fast,
        "off": f"{off:.0%}",
    }


def larger_batch() -> dict[str, object]:
    """Predict the largest batch that fits into 16 GiB, in fp32 and under bf16 autocast."""
    model, capacity = autocast.fake_copy(_perceptron(4096, depth=8)), 16 * 2**30

    def largest(precision: str) -> int:
        return measure.predict_largest_batch(
            model, lambda batch: torch.empty(batch, 4096), capacity, precision_name=precision
        ).batch

    fp32, mixed = largest("fp32"), largest("bf16")
    assert 1 < mixed / fp32 < 2
    return {"fp32": fp32, "bf16": mixed, "times": f"{mixed / fp32:.2f}", "memory": "16 GiB"}
