"""Proofs of the answers about speed and memory: computed, for no GPU is needed to count bytes."""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from amp_lessons import autocast, measure, parallel
from amp_lessons.formats import FORMATS

_H100, _V100 = measure.GPUS["H100 SXM"], measure.GPUS["V100 SXM2 32 GB"]


def _perceptron(width: int = 1024, depth: int = 4) -> nn.Sequential:
    blocks = ((nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(depth))
    return nn.Sequential(*(layer for block in blocks for layer in block), nn.Linear(width, 10))


def bytes_per_parameter() -> dict[str, object]:
    """Predict what weights, gradients and AdamW's state take, in fp32 and under autocast."""
    inputs, parameters = torch.randn(1, 1000), 1000 * 1000

    def layer() -> nn.Module:
        return nn.Linear(1000, 1000, bias=False)

    def state(found: measure.Footprint) -> list[float]:
        parts = (found.parameter_bytes, found.gradient_bytes, found.optimizer_bytes)
        return [part / parameters for part in parts]

    fp32, mixed = (measure.predict_memory(layer(), inputs, precision_name=name) for name in ("fp32", "bf16"))
    assert state(fp32) == state(mixed) == [4, 4, 8]
    copies = max(moment.live_bytes.get("weight copies", 0) for moment in mixed.history)
    assert copies == 2 * parameters  # on top, while they are cached
    assert mixed.history[-1].live_bytes.get("weight copies", 0) == 0
    saved = [sum(each.nbytes for each in found.saved) for found in (fp32, mixed)]
    assert saved[1] == saved[0] / 2  # activations shrink
    pure = sum(state(measure.predict_memory(layer().bfloat16(), inputs.bfloat16())))
    assert pure == sum(state(fp32)) / 2
    assert torch.ones(()).bfloat16() - 1e-3 == 1  # a small update, lost
    large_models = parallel.CONVENTIONS["megatron bf16"].total
    assert large_models == 2 + 4 + 4 + 8  # bf16 weights, then gradients, masters and moments in fp32
    weights, gradients, moments = state(mixed)
    return {
        "weights": f"{weights:g}",
        "gradients": f"{gradients:g}",
        "moments": f"{moments:g}",
        "total": f"{weights + gradients + moments:g}",
        "pure": f"{pure:g}",
        "zero": large_models,
    }


def activations() -> dict[str, object]:
    """Count what autograd saves of a network with norms, and of parts of it, under CUDA's bf16 autocast."""
    rows, width = 4096, 1024
    one = rows * width  # elements of an activation

    def saved(*layers: Any, dtype: torch.dtype | None = torch.bfloat16) -> dict[torch.dtype, int]:
        with autocast.fake_tensors():  # sizes without values
            model, inputs = nn.Sequential(*(layer() for layer in layers)), torch.empty(rows, width)
        return measure.saved_activation_bytes(model, inputs, dtype=dtype)

    fp32, mixed = sum(saved(_perceptron, dtype=None).values()), saved(_perceptron)
    share = sum(mixed.values()) / fp32
    still = mixed[torch.float32] / sum(mixed.values())
    assert 0.5 < share < 0.95
    assert still > 0.2

    class Loss(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.mse_loss(x, torch.zeros_like(x))

    product, norm = partial(nn.Linear, width, width), partial(nn.LayerNorm, width)
    softmax, cut = partial(nn.Softmax, -1), partial(nn.MaxPool1d, 2)
    assert saved(product) == {torch.bfloat16: 2 * one}
    assert all(saved(product, each)[torch.float32] >= 4 * one for each in (norm, softmax, Loss))
    both = saved(product, softmax, product)  # what softmax saves, and the copy of it for the product
    assert both == {torch.bfloat16: (2 + 2) * one + 2 * width**2, torch.float32: 4 * one}
    indices = [saved(product, cut, dtype=dtype)[torch.int64] for dtype in (None, torch.bfloat16)]
    assert indices[0] == indices[1] == 8 * one / 2
    return {}


def roofline() -> dict[str, object]:
    """Compare an H100's ridge point with what a product and an addition do per byte."""
    ridge = _H100.ridge_point("bf16")
    assert abs(ridge / (989e12 / 3.35e12) - 1) < 0.01  # its data sheet, dense
    size = next(n for n in range(64, 4096, 2) if measure.product_intensity(n, "bf16") > ridge)
    assert abs(size / 3 / ridge - 1) < 0.01  # n / 3 FLOP per byte in 16 bits
    assert measure.product_intensity(size - 2, "bf16") <= ridge

    def gain(adding_bytes: int | None) -> float:
        """Return what bf16 gains over fp32: a large product, or an addition on tensors of so many bytes."""
        if adding_bytes is None:
            return _H100.flop_per_s["bf16"] / _H100.flop_per_s["fp32"]
        rates = [_H100.attainable_flop_per_s("bf16", 1 / (3 * each)) for each in (adding_bytes, 4)]
        return rates[0] / rates[1]

    assert math.isclose(gain(2), 2)  # half as many bytes
    assert gain(4) == 1  # if its tensors are still fp32 in memory
    assert gain(None) > 10
    adding = 1 / (3 * torch.bfloat16.itemsize)  # two numbers read, one written
    share = _H100.attainable_flop_per_s("bf16", adding) / _H100.flop_per_s["bf16"]
    assert share < 0.001
    return {
        "ridge": f"{ridge:.0f}",
        "size": size,
        "adding": f"{adding:.2f}",
    }


def multiples() -> dict[str, object]:
    """Count the elements in 16 bytes, ask FP8's product which sizes it takes, and pad GPT-2's vocabulary."""
    aligned = 16  # bytes
    half, eight = aligned // torch.float16.itemsize, aligned // torch.float8_e4m3fn.itemsize

    def takes(rows: int, summed: int, columns: int) -> bool:
        """Return whether a GPU's FP8 product takes these sizes; no GPU is needed to ask."""
        with FakeTensorMode():
            left, right = (
                torch.empty(n, summed, device="cuda", dtype=torch.float8_e4m3fn) for n in (rows, columns)
            )
            scale = torch.empty((), device="cuda")
            try:
                torch._scaled_mm(left, right.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
            except RuntimeError as error:
                return "divisible by 16" not in str(error)  # refused, and for this
        return True

    logging.disable(logging.CRITICAL)  # PyTorch logs what it refuses
    aligned_or_not = [takes(*sizes) for sizes in ((16, 32, 48), (16, 32, 40), (16, 40, 48))]
    tokens = 40  # are rows going forward; backward, for the gradient of the weight, they are summed over
    forward, backward = takes(tokens, 32, 48), takes(32, tokens, 48)
    logging.disable(logging.NOTSET)
    assert aligned_or_not == [True, False, False]
    assert (forward, backward) == (True, False)
    vocabulary = 50_257
    assert vocabulary % 2
    padded = -(-vocabulary // 64) * 64
    assert padded % half == padded % eight == 0
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
    weight = nn.Parameter(torch.ones(4, 4))
    with torch.autocast("cpu", torch.bfloat16):
        (weight @ weight).sum().backward()
    assert weight.grad is not None
    assert weight.dtype == weight.grad.dtype == torch.float32  # optimizer and communication work on these
    rate = measure.GPUS["A100 SXM 80 GB"].flop_per_s
    over_tf32, over_fp32 = rate["bf16"] / rate["tf32"], rate["bf16"] / rate["fp32"]
    assert over_tf32 < over_fp32 / 4
    assert rate["bf16"] / 2 > rate["fp32"]  # at half its peak a product is above all that fp32's units can do
    return {
        "over_tf32": f"{over_tf32:.0f}",
        "over_fp32": f"{over_fp32:.0f}",
    }


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
    weight = nn.Parameter(torch.ones(1000))
    weight.grad = torch.ones(1000)
    optimizer, allocated = torch.optim.AdamW([weight]), []
    for _ in range(3):
        allocated.append(sum(each.nbytes for state in optimizer.state.values() for each in state.values()))
        optimizer.step()
    assert 0 == allocated[0] < allocated[1] == allocated[2]  # the first step is another one
    return {}


def why_no_memory() -> dict[str, object]:
    """Predict the peak of the same model with a tiny and with a large batch, in fp32 and in bf16."""

    def footprints(batch: int) -> tuple[measure.Footprint, measure.Footprint]:
        with autocast.fake_tensors():  # sizes without values
            model, inputs = _perceptron(), torch.empty(batch, 1024)
        fp32, mixed = (measure.predict_memory(model, inputs, precision_name=p) for p in ("fp32", "bf16"))
        return fp32, mixed

    def saved(fp32: measure.Footprint, mixed: measure.Footprint) -> float:
        return 1 - mixed.peak_bytes / fp32.peak_bytes

    few, many = footprints(8), footprints(32768)
    tiny, large = saved(*few), saved(*many)
    assert abs(tiny) < 0.01
    assert large > 0.15
    for each in few:
        state = each.parameter_bytes + each.gradient_bytes + each.optimizer_bytes
        assert state > 0.75 * each.peak_bytes
    assert max(moment.live_bytes.get("weight copies", 0) for moment in few[1].history) > 0
    return {}


def bf16_supported() -> dict[str, object]:
    """Ask what `is_bf16_supported` takes for support, on GPUs that are not there."""
    default = inspect.signature(torch.cuda.is_bf16_supported).parameters["including_emulation"].default
    assert default is True

    def supported(major: int, **asked: bool) -> bool:
        there = {"is_available": True, "current_device": 0, "_check_bf16_tensor_supported": True}
        with contextlib.ExitStack() as patched:
            for name, value in there.items():
                patched.enter_context(mock.patch(f"torch.cuda.{name}", return_value=value))
            gpu = mock.Mock(major=major)
            patched.enter_context(mock.patch("torch.cuda.get_device_properties", return_value=gpu))
            patched.enter_context(mock.patch("torch.version.hip", None))
            return torch.cuda.is_bf16_supported(**asked)

    assert supported(7)  # as a V100 or a T4 is
    assert not supported(7, including_emulation=False)
    assert supported(8, including_emulation=False)
    assert "bf16" not in _V100.flop_per_s
    assert "bf16" not in measure.GPUS["T4"].flop_per_s
    assert {"fp16", "bf16"} <= set(measure.GPUS["A100 SXM 40 GB"].flop_per_s)
    return {"default": default, "capability": "(8, 0)"}


def fair_baseline() -> dict[str, object]:
    """Compare bf16's promised rate on an H100 with fp32's, and with TF32's."""
    rate = _H100.flop_per_s
    plain, tensor_cores = rate["bf16"] / rate["fp32"], rate["bf16"] / rate["tf32"]
    assert abs(plain / (989 / 67) - 1) < 0.02  # its data sheet, dense
    assert 1.9 < tensor_cores < 2.1
    before = torch.get_float32_matmul_precision()
    switched = []
    for precision in ("highest", "high"):
        torch.set_float32_matmul_precision(precision)
        switched.append(torch.backends.cuda.matmul.allow_tf32)
    torch.set_float32_matmul_precision(before)
    assert switched == [False, True]
    return {"plain": f"{plain:.0f}", "tensor_cores": f"{tensor_cores:.0f}"}


def amdahl() -> dict[str, object]:
    """Make products of a step faster and the rest not."""

    def speed_up(share: float, factor: float) -> float:
        return 1 / (1 - share + share / factor)

    half, most = speed_up(0.5, 8), speed_up(0.9, 8)
    limit = 1 / (1 - 0.5)
    assert math.isclose(half, 16 / (8 / 8 + 8))  # of sixteen hours eight are products, and become one
    assert math.isclose(most, 80 / (72 / 8 + 8))
    assert 0.999 * limit < speed_up(0.5, 1e9) < limit
    assert (1 - 0.5) * half > 0.8  # of the new step is what was half of the old one

    weight = nn.Parameter(torch.ones(1000))
    optimizer = torch.optim.AdamW([weight], fused=True)
    for _ in range(2):  # the first step makes the moments
        weight.grad = torch.randn(1000)
        moments = [each for each in optimizer.state.get(weight, {}).values() if each.numel() == 1000]
        touched = [weight, weight.grad, *moments]
        before = [each.detach().clone() for each in touched]
        optimizer.step()
    written = [now for now, then in zip(touched, before, strict=True) if not torch.equal(now, then)]
    assert (len(touched), len(written)) == (4, 3)  # all but the gradient
    moved = sum(each.itemsize for each in touched + written)
    assert 20 / moved < _H100.ridge_point("fp32") / 10  # some 20 FLOP: nothing to the bytes
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

    model, inputs = _perceptron(128), torch.randn(1024, 128, requires_grad=True)
    plain = sum(measure.saved_activation_bytes(model, inputs, dtype=torch.bfloat16).values())
    recomputed = sum(
        measure.saved_activation_bytes(Recomputed(model, 4), inputs, dtype=torch.bfloat16).values()
    )
    assert recomputed < 0.5 * plain

    def gradients(network: nn.Module, enabled: bool = True) -> list[torch.Tensor]:
        torch.manual_seed(0)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = network(inputs).square().mean()
        return list(torch.autograd.grad(loss, list(model.parameters())))

    same = map(torch.equal, gradients(model), gradients(Recomputed(model, 4)))
    assert all(same)  # backward runs outside autocast; what is recomputed does not
    assert not any(map(torch.equal, gradients(model), gradients(model, enabled=False)))  # as it would have
    model[1] = model[7] = nn.Dropout(0.5)
    assert all(map(torch.equal, gradients(model), gradients(Recomputed(model, 4))))  # random state too

    def work(network: nn.Module, backward: bool = True) -> int:
        with FlopCounterMode(display=False) as counter:
            output = network(inputs).sum()
            _ = backward and output.backward()
        return counter.get_total_flops()

    assert work(model) == 3 * work(model, backward=False)
    more = work(Recomputed(model, 4)) / work(model) - 1
    assert abs(more - 1 / 3) < 0.01

    def stored_in(dtype: torch.dtype, layer: nn.Module) -> list[torch.Tensor]:
        """Return the gradients of input and parameters, where the input is kept in another dtype."""

        def pack(kept: torch.Tensor) -> torch.Tensor:
            return kept.to(dtype) if kept.data_ptr() == inputs.data_ptr() else kept

        with torch.autograd.graph.saved_tensors_hooks(pack, torch.Tensor.float):
            output = layer(inputs)
        return list(torch.autograd.grad(output, [inputs, *layer.parameters()], output.detach().cos()))

    linear, low = nn.Linear(128, 64), torch.float8_e4m3fn
    exact, kept_in_8_bits = stored_in(torch.float32, linear), stored_in(low, linear)
    assert list(map(torch.equal, exact, kept_in_8_bits)) == [True, False, True]  # input, weight, bias
    off = ((kept_in_8_bits[1] - exact[1]).norm() / exact[1].norm()).item()
    assert 0.01 < off < 0.1
    for layer in (nn.GELU(), nn.RMSNorm(128)):
        assert not torch.equal(stored_in(low, layer)[0], stored_in(torch.float32, layer)[0])
    return {
        "more": f"{more:.0%}",
        "low": "E4M3",
    }


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
    all_reduced, scattered, gathered = (
        parallel.sent_bytes(name, 4_000_000_000, 8) for name in ("all-reduce", "reduce-scatter", "all-gather")
    )
    assert scattered + gathered == all_reduced  # ZeRO's first stage sends what DDP sends

    def stepped(*shards: torch.Tensor) -> torch.Tensor:
        """Let an AdamW of its own make two steps on each shard, and return the weights."""
        weights = [nn.Parameter(shard.clone()) for shard in shards]
        for weight in weights:
            optimizer, weight.grad = torch.optim.AdamW([weight]), weight.detach().sin()
            for _ in range(2):
                optimizer.step()
        return torch.cat([weight.detach() for weight in weights])

    whole = torch.randn(800)
    assert torch.equal(stepped(whole), stepped(*whole.chunk(8)))  # exactly the same numbers

    def settled(beta2: float, square: float) -> float:
        """Return where a bf16 second moment ends that begins at one and should come to ``square``."""
        moment, target = (torch.full((), value, dtype=torch.bfloat16) for value in (1.0, square))
        for _ in range(1000):
            moment.lerp_(target, 1 - beta2)
        return moment.item()

    slow, fast = 0.999, 0.95
    assert slow == inspect.signature(torch.optim.AdamW).parameters["betas"].default[1]
    assert settled(slow, 2.25) == settled(slow, 0.25) == 1  # it neither rises nor falls
    assert all(abs(settled(fast, square) / square - 1) < 0.1 for square in (2.25, 0.25))
    # Adafactor: of a matrix the means of rows and columns, of a vector all
    matrix, vector = (nn.Parameter(torch.ones(shape)) for shape in ((64, 32), (7,)))
    matrix.grad, vector.grad = torch.randn(64, 32), torch.randn(7)
    adafactor = torch.optim.Adafactor([matrix, vector])
    adafactor.step()
    kept = [
        {name: value.numel() for name, value in adafactor.state[each].items() if name != "step"}
        for each in (matrix, vector)
    ]
    assert kept == [{"row_var": 64, "col_var": 32}, {"variance": 7}]  # and no first moment

    def fitted(squares: torch.Tensor) -> torch.Tensor:
        return squares.mean(1, keepdim=True) * squares.mean(0, keepdim=True) / squares.mean()

    product, outlier = torch.rand(64, 1) * torch.rand(1, 32), torch.ones(64, 32)
    assert torch.allclose(fitted(product), product)
    outlier[3, 5] = 1e4
    fit = fitted(outlier)
    assert min(fit[3, 0], fit[0, 5]) > 10  # its row and its column
    assert fit[0, 0] < 0.5  # and what is elsewhere: too small a moment, too long a step
    side = 4096
    return {
        "adamw": f"{adamw:g}",
        "eight_bits": f"{eight_bits:g}",
        "ranks": 8,
        "sharded": f"{sharded:g}",
        "slow": slow,
        "fast": fast,
        "side": f"{side:,}",
        "per_weight": f"{side**2 / (2 * side):,.0f}",
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
    with autocast.fake_tensors():
        body, rows = _perceptron(4096, depth=8), torch.empty(2**17, 4096)
    wide, narrow = (measure.saved_activation_bytes(body, rows, dtype=each) for each in (None, torch.bfloat16))
    assert narrow[torch.float32] > 0.25 * sum(narrow.values())  # of what is saved, part stays fp32
    assert mixed / fp32 < sum(wide.values()) / sum(narrow.values()) < 1.6  # saved bytes alone do not halve
    few, many = (1 / (2 / 4096 + 1 / rows) for rows in (64, 4096))  # FLOP per byte of a product in 16 bits
    assert few < _H100.ridge_point("bf16") < many  # larger ones use tensor cores better
    return {
        "times": f"{mixed / fp32:.2f}",
        "memory": "16 GiB",
    }
