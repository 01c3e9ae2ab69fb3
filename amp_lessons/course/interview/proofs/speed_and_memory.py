"""Proofs of the answers about speed and memory: computed, for no GPU is needed to count bytes."""

from __future__ import annotations

import inspect
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import autocast, measure, parallel
from amp_lessons.formats import FORMATS

_H100 = measure.GPUS["H100 SXM"]


def _perceptron(width: int = 1024, depth: int = 4) -> nn.Sequential:
    blocks = ((nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(depth))
    return nn.Sequential(*(layer for block in blocks for layer in block), nn.Linear(width, 10))


def bytes_per_parameter() -> None:
    """Predict what weights, gradients and AdamW's state take, in fp32 and under autocast."""
    inputs, parameters = torch.randn(1, 1000), 1000 * 1000

    def state(dtype: torch.dtype, precision: str) -> list[float]:
        layer = nn.Linear(1000, 1000, bias=False, dtype=dtype)
        found = measure.predict_memory(layer, inputs.to(dtype), precision_name=precision)
        parts = (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes)
        return [part / parameters for part in parts]

    weights, gradients, moments = mixed = state(torch.float32, "bf16")
    assert mixed == state(torch.float32, "fp32")
    total = sum(mixed)
    pure, megatron = sum(state(torch.bfloat16, "fp32")), parallel.CONVENTIONS["megatron bf16"].total


def activations() -> None:
    """Count what autograd saves of a network with norms, and of parts of it, under CUDA's bf16 autocast."""
    rows, width = 4096, 1024
    one = rows * width  # elements of an activation

    def saved(*layers: Any, dtype: torch.dtype | None = torch.bfloat16) -> dict[torch.dtype, int]:
        with autocast.fake_tensors():  # sizes without values
            model, inputs = nn.Sequential(*(layer() for layer in layers)), torch.empty(rows, width)
        return measure.saved_activation_bytes(model, inputs, dtype=dtype)

    assert 0.5 < sum(saved(_perceptron).values()) / sum(saved(_perceptron, dtype=None).values()) < 0.95
    product, norm = partial(nn.Linear, width, width), partial(nn.LayerNorm, width)
    softmax, cut = partial(nn.Softmax, -1), partial(nn.MaxPool1d, 2)
    assert saved(product) == {torch.bfloat16: 2 * one}
    assert all(saved(product, each)[torch.float32] >= 4 * one for each in (norm, softmax))
    both = saved(product, softmax, product)  # what softmax saves, and the copy of it for the product
    assert both == {torch.bfloat16: (2 + 2) * one + 2 * width**2, torch.float32: 4 * one}
    indices = [saved(product, cut, dtype=dtype)[torch.int64] for dtype in (None, torch.bfloat16)]
    assert indices[0] == indices[1] == 8 * one / 2


def roofline() -> None:
    """Compare an H100's ridge point with what a product and an addition do per byte."""
    ridge = _H100.ridge_point("bf16")
    size = next(n for n in range(64, 4096, 2) if measure.product_intensity(n, "bf16") > ridge)
    assert abs(size / 3 / ridge - 1) < 0.01  # n / 3 FLOP per byte in 16 bits
    # Two numbers are read and one is written; half as many bytes make an addition twice as fast
    in_bf16, in_fp32 = (_H100.attainable_flop_per_s("bf16", 1 / (3 * each)) for each in (2, 4))
    assert math.isclose(in_bf16, 2 * in_fp32)
    adding = 1 / (3 * 2)


def multiples() -> None:
    """Count the elements in 16 bytes, and pad GPT-2's vocabulary."""
    aligned, vocabulary = 16, 50_257
    half, eight = aligned // torch.float16.itemsize, aligned // torch.float8_e4m3fn.itemsize
    padded = -(-vocabulary // 64) * 64
    assert vocabulary % 2 == 1
    assert padded % half == padded % eight == 0
    cost = padded / vocabulary - 1


def why_slower() -> None:
    """Count the casts that autocast adds to a small model, and compare the rates that an A100 has."""
    ledger = autocast.record(_perceptron(16, depth=4), torch.randn(8, 16), dtype=torch.bfloat16)
    assert sum(len(row.casts) for row in ledger.rows) > len(ledger.rows) / 2
    rate = measure.GPUS["A100 SXM 80 GB"].flop_per_s
    assert rate["bf16"] / 2 > rate["fp32"]  # at half its peak a product is above all that fp32's units can do
    over_tf32 = rate["bf16"] / rate["tf32"]
    over_fp32 = rate["bf16"] / rate["fp32"]


def timing() -> None:
    """Time work that is queued, as a GPU's is, without waiting for it and with; a thread stands in for it."""
    with ThreadPoolExecutor(1) as queue:
        started = time.perf_counter()
        work = queue.submit(time.sleep, 0.2)
        launched = time.perf_counter() - started
        work.result()  # what torch.cuda.synchronize() does
        finished = time.perf_counter() - started
    assert launched < finished / 2


def why_no_memory() -> None:
    """Predict the peak of the same model with a tiny and with a large batch, in fp32 and in bf16."""

    def saved(batch: int) -> float:
        with autocast.fake_tensors():  # sizes without values
            model, inputs = _perceptron(), torch.empty(batch, 1024)
        fp32, mixed = (measure.predict_memory(model, inputs, precision_name=p) for p in ("fp32", "bf16"))
        return 1 - mixed.peak_bytes / fp32.peak_bytes

    assert abs(saved(8)) < 0.01
    assert saved(32768) > 0.15


def bf16_supported() -> None:
    """Ask what `is_bf16_supported` takes for support, on GPUs that are not there."""
    default = inspect.signature(torch.cuda.is_bf16_supported).parameters["including_emulation"].default

    def supported(major: int, **asked: bool) -> bool:
        there = {"is_available": True, "current_device": 0, "_check_bf16_tensor_supported": True}
        found = {name: mock.Mock(return_value=value) for name, value in there.items()}
        found["get_device_properties"] = mock.Mock(return_value=mock.Mock(major=major))
        with mock.patch.multiple(torch.cuda, **found), mock.patch("torch.version.hip", None):
            return torch.cuda.is_bf16_supported(**asked)

    major, capability = 8, "(8, 0)"
    assert supported(major - 1)  # as a V100 or a T4 is
    assert not supported(major - 1, including_emulation=False)
    assert supported(major, including_emulation=False)


def fair_baseline() -> None:
    """Compare bf16's promised rate on an H100 with fp32's, and with TF32's."""
    rate = _H100.flop_per_s
    plain, tensor_cores = rate["bf16"] / rate["fp32"], rate["bf16"] / rate["tf32"]
    assert plain > 4 * tensor_cores


def amdahl() -> None:
    """Make products of a step faster and the rest not."""

    def speed_up(share: float, factor: float) -> float:
        return 1 / (1 - share + share / factor)

    times, part, larger = 8, 0.5, 0.9
    half, most = speed_up(part, times), speed_up(larger, times)
    limit = 1 / (1 - part)
    assert half < speed_up(part, 1e9) < limit


def checkpointing() -> None:
    """Count what autograd saves of a network whose blocks are recomputed, beside plain bf16."""

    class Recomputed(nn.Module):
        def __init__(self, body: nn.Sequential, depth: int) -> None:
            super().__init__()
            self.body, self.depth = body, depth

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i in range(0, 3 * self.depth, 6):  # two blocks at a time
                x = checkpoint(self.body[i : i + 6], x, use_reentrant=False)
            return self.body[-1](x)

    model, inputs = _perceptron(128), torch.randn(1024, 128, requires_grad=True)
    plain, recomputed = (
        sum(measure.saved_activation_bytes(each, inputs, dtype=torch.bfloat16).values())
        for each in (model, Recomputed(model, 4))
    )
    assert recomputed < 0.5 * plain

    def gradients(network: nn.Module) -> list[torch.Tensor]:
        with torch.autocast("cpu", torch.bfloat16):
            loss = network(inputs).square().mean()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    assert all(map(torch.equal, gradients(model), gradients(Recomputed(model, 4))))  # autocast is restored

    def work(network: nn.Module) -> int:
        with FlopCounterMode(display=False) as counter:
            network(inputs).sum().backward()
        return counter.get_total_flops()

    def stored_in(dtype: torch.dtype, layer: nn.Module) -> list[torch.Tensor]:
        """Return the gradients of input and parameters, where the input is kept in another dtype."""

        def pack(kept: torch.Tensor) -> torch.Tensor:
            return kept.to(dtype) if kept.data_ptr() == inputs.data_ptr() else kept

        with torch.autograd.graph.saved_tensors_hooks(pack, torch.Tensor.float):
            output = layer(inputs)
        return list(torch.autograd.grad(output, [inputs, *layer.parameters()], output.detach().cos()))

    linear, low = nn.Linear(128, 64), torch.float8_e4m3fn
    same = map(torch.equal, stored_in(torch.float32, linear), stored_in(low, linear))
    assert list(same) == [True, False, True]  # the gradients of input, weight, bias
    assert not torch.equal(stored_in(low, nn.GELU())[0], stored_in(torch.float32, nn.GELU())[0])
    more = work(Recomputed(model, 4)) / work(model) - 1


def optimizer_memory() -> None:
    """Count the bytes of optimizer state per parameter; let bf16 moments and Adafactor's fit change."""
    ranks = 8
    adamw = measure.optimizer_bytes(torch.optim.AdamW, [torch.empty(1000, requires_grad=True)]).state / 1000
    sharded = parallel.memory_per_rank(1_000_000_000, ranks, "zero1", "fp32").held["Adam's moments"] / 1e9
    assert sharded == adamw / ranks

    def too_large(beta2: float) -> float:
        """Return how many times as large a bf16 second moment of noisy gradients is as an fp32 one."""
        moments = [torch.zeros(1000, dtype=dtype) for dtype in (torch.bfloat16, torch.float32)]
        draw = torch.Generator().manual_seed(0)
        for _ in range(3000):
            square = torch.randn(1000, generator=draw).square()
            for moment in moments:
                moment.mul_(beta2).add_(square, alpha=1 - beta2)
        in_bf16, right = (moment.float().mean().item() for moment in moments)
        return in_bf16 / right

    slow, fast = 0.999, 0.95
    assert slow == inspect.signature(torch.optim.AdamW).parameters["betas"].default[1]
    moment = torch.linspace(1, 2, 100).bfloat16()
    assert torch.equal(slow * moment, moment)  # it does not fall, even where gradients are zero
    assert too_large(slow) > 1.5  # noisy gradients drive it up, and a step divides by its root
    assert abs(too_large(fast) - 1) < 0.1

    def fitted(squares: torch.Tensor) -> torch.Tensor:
        return squares.mean(1, keepdim=True) * squares.mean(0, keepdim=True) / squares.mean()

    product, outlier = torch.rand(64, 1) * torch.rand(1, 32), torch.ones(64, 32)
    assert torch.allclose(fitted(product), product)
    outlier[3, 5] = 1e4
    fit = fitted(outlier)
    assert min(fit[3, 0], fit[0, 5]) > 10  # its row and its column
    assert fit[0, 0] < 0.5  # and what is elsewhere: too small a moment, too long a step
    side = 4096
    eight_bits = adamw * FORMATS["fp8_e4m3"].bits / FORMATS["fp32"].bits
    per_weight = side**2 / (2 * side)


def larger_batch() -> None:
    """Predict the largest batch that fits into 16 GiB, in fp32 and under bf16 autocast."""
    width, layers, gibibytes = 4096, 8, 16
    model = autocast.fake_copy(_perceptron(width, layers))

    def largest(precision: str) -> int:
        return measure.predict_largest_batch(
            model, lambda batch: torch.empty(batch, width), gibibytes * 2**30, precision_name=precision
        ).batch

    times = largest("bf16") / largest("fp32")
    assert 1 < times < 2
