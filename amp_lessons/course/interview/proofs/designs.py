"""Calculations behind the rounds of system design: one function per round, for all of its stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import measure, parallel
from amp_lessons.course.interview.proofs.language_models import (
    batch_invariance,
    importance_correction,
    sequence_ratio,
)
from amp_lessons.formats import FORMATS


class _Normalised(torch.autograd.Function):
    """An RMS norm in one node, as CUDA's: it keeps the input, the gain, and a number in fp32 a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor) -> Tensor:
        scale = x.float().square().mean(-1, keepdim=True).rsqrt()
        ctx.save_for_backward(x, scale, gain)
        return (x.float() * scale).to(x.dtype) * gain

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise NotImplementedError("only what is kept is counted")


class _FusedNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return _Normalised.apply(x, self.weight)


_WIDE = 4


class _Block(nn.Module):
    """A block of a decoder: attention and two layers of ``_WIDE`` times the width, each behind its norm."""

    def __init__(self, width: int, heads: int = 8, norm: Callable[[int], nn.Module] = _FusedNorm) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(norm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = (
            nn.Linear(width, _WIDE * width, bias=False),
            nn.Linear(_WIDE * width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def pretrain() -> None:
    """Put 70 billion parameters on 512 GPUs: bytes, what crosses the nodes, and how often to save."""
    billions, gpus, layers, width, tokens, vocabulary = 70, 512, 80, 8192, 4096, 128_256
    parameters, usable = billions * 10**9, 80  # GB, as an H100 is sold
    rate = measure.GPUS["H100 SXM"].flop_per_s["bf16"] / 1e12  # TFLOP/s
    total, stage_two, shard = (
        parallel.memory_per_rank(parameters, gpus, stage, "zero").total / 1e9
        for stage in ("ddp", "zero2", "zero3")
    )
    assert torch.tensor(1.0).bfloat16() + 1e-3 == 1  # small updates vanish
    assert torch.tensor(tokens - 1.0).bfloat16().float() != tokens - 1  # positions need more digits
    assert stage_two > usable > shard
    unit = parameters // layers
    gathered = parallel.memory_per_rank(parameters, gpus, "fsdp2", "fp32", gathered_parameters=2 * unit)
    with_unit = gathered.total / 1e9
    block_gradient, logits = 4 * unit / 1e9, 4 * tokens * vocabulary / 1e9
    # What a block keeps for the backward pass, by CUDA's kernels, in bytes per token and width.
    x, wide = torch.randn(1, 64, 128, dtype=torch.bfloat16, requires_grad=True), _WIDE
    kept = sum(measure.saved_activation_bytes(_Block(128).bfloat16(), x).values()) / x.numel()
    activations, inputs = (each * tokens * width * layers / 1e9 for each in (kept, 2))
    on_top = block_gradient + 3 * logits  # logits, log-probabilities, gradient
    assert inputs + with_unit + on_top < usable < activations  # so blocks are computed again

    # A reduction over all ranks, in bf16 and in fp32.
    gradients = parallel.rank_gradients(gpus)
    assert parallel.reduction(gradients, torch.float32).relative_error < 1e-5
    assert parallel.reduction(gradients, torch.bfloat16).size < 0.8  # towards less

    # A step: six operations per parameter and token, recomputation makes eight; what each rank sends, in GB.
    millions, share, link, node = 4, 0.4, 50, 8
    compute_s = 8 * parameters * millions * 1e6 / (gpus * rate * 1e12 * share)
    gather, scatter = (float(parallel.sent_bytes(name, 1, gpus)) for name in ("all-gather", "reduce-scatter"))
    sent = billions * (2 * 2 * gather + 4 * scatter)  # forward and backward, gradients
    out = sent / node  # in a ring for each card one hop in eight leaves the node
    sequences = round(millions * 1e6 / gpus / tokens)  # of a rank: in one micro-batch, gathered for once
    assert with_unit + block_gradient + sequences * (inputs + 3 * logits) < usable / 2
    sending_s = out / link
    assert sending_s < compute_s / 5
    hops, hop_us, collectives = gpus - 1, 5, 3
    latency_s = layers * collectives * hops * hop_us / 1e6

    # What is saved: fp32 weights and both moments; the interval is Young's.
    saved, per_node, hours, update = 12 * billions, 2, 8, 1e-4
    write_s = saved / (gpus / node * per_node)
    every = math.sqrt(2 * write_s * hours * 3600) / 60
    weights = torch.randn(10_000)
    off = ((weights.bfloat16().float() - weights) / weights).abs().max().item()
    steps = round(off / update)
    assert steps > 10  # of a weight, as one step moves it: a checkpoint in bf16 takes steps back
    logit = 100
    spacing = FORMATS["bf16"].spacing(float(logit))


def serve() -> None:
    """Read 70 billion weights and a cache of keys and values for each token that is served."""
    billions, layers, kv_heads, head, most_ms = 70, 80, 8, 128, 20
    users, context, gpus, coarsest, finest = 32, 8192, 4, 128, 16
    gpu, usable = measure.GPUS["H100 SXM"], 80  # GB, as it is sold
    bandwidth, rate = gpu.bytes_per_s / 1e12, gpu.flop_per_s["bf16"] / 1e12
    bits = {"bf16": 16.0, "fp8": 8.0, "int4": 4 + 16 / coarsest}  # an fp16 scale for each group of weights
    gigabytes = {name: each * billions / 8 for name, each in bits.items()}

    read = {name: each / bandwidth for name, each in gigabytes.items()}  # in ms, on one GPU
    several = read["bf16"] / gpus
    assert gigabytes["bf16"] > usable > gigabytes["fp8"]
    assert read["fp8"] > most_ms > max(read["int4"], several)
    per_token = 2 * layers * kv_heads * head * 2 / 1e3  # keys and values, in bf16: kB
    cache = per_token * users * context / 1e6
    with_cache = (gigabytes["bf16"] + cache) / bandwidth / gpus
    halved = with_cache / 2
    room = round(1e6 * (usable - gigabytes["fp8"]) / per_token, -3)  # beside FP8's weights, on one GPU
    assert context < room < users * context
    assert gigabytes["bf16"] + cache < gpus * usable
    ridge = gpu.ridge_point("bf16")  # two operations for each weight of two bytes, for each user

    # Weights in four bits: one outlier takes the steps of all that share its scale.
    weights, outlier = torch.randn(64, 128), 40.0
    for group in (coarsest, finest):
        assert (weights[:, 1:group] / (outlier / 7)).round().eq(0).float().mean() > 0.95

    # The same products in another order of their sums: which token is the largest?
    batch_invariance()  # the same order gives the same bits, another one others
    logits = torch.randn(2048, 512).bfloat16().float() @ torch.randn(512, 2000).bfloat16().float()
    in_bf16, in_fp32 = (each.topk(2).values.unbind(-1) for each in (logits.bfloat16(), logits))
    assert (in_bf16[0] == in_bf16[1]).any()
    assert (in_fp32[0] > in_fp32[1]).all()  # in fp32 ties are rare
    large_group, small_group, limit = coarsest - 1, finest - 1, FORMATS["fp8_e4m3"].max


def reinforce() -> None:
    """Compute the log-probabilities of tokens twice, as a trainer does and as an engine does."""
    depth, width, vocabulary, tokens, long = 12, 256, 1000, 4000, 1000
    layers = [torch.randn(width, width) / width**0.5 for _ in range(depth)]
    head, start = torch.randn(width, vocabulary) * 3 / width**0.5, torch.randn(tokens, width)

    def in_fp8(weight: Tensor) -> Tensor:
        scale = weight.abs().max() / 448
        return (weight / scale).to(torch.float8_e4m3fn).float() * scale

    def log_probabilities(dtype: torch.dtype, fused: bool, few_bits: bool = False) -> Tensor:
        """Round behind each operation, or fused: only what enters a product."""
        rounded = (lambda x: x) if fused else (lambda x: x.to(dtype).float())
        x = start
        for layer in layers:
            weight = in_fp8(layer) if few_bits else layer.to(dtype).float()
            normed = rounded(rounded(x) * rounded(x.square().mean(-1, keepdim=True).rsqrt()))
            x = rounded(x + rounded(F.silu(rounded(normed.to(dtype).float() @ weight))))
        logits = rounded(x.to(dtype).float() @ head.to(dtype).float())
        return F.log_softmax(logits, -1)

    exact = log_probabilities(torch.float32, fused=True)
    drawn = torch.distributions.Categorical(logits=exact).sample()[:, None]

    def apart(dtype: torch.dtype, few_bits: bool = False) -> Tensor:
        engine, trainer = log_probabilities(dtype, True, few_bits), log_probabilities(dtype, False)
        return (trainer - engine).gather(-1, drawn)[:, 0]

    in_bf16 = apart(torch.bfloat16)
    bf16, fp16, few = (
        each.std() for each in (in_bf16, apart(torch.float16), apart(torch.bfloat16, few_bits=True))
    )
    times, few_times = bf16 / fp16, few / bf16
    assert 6 < times < 10  # three bits: a factor of eight
    assert few_times > 2
    assert fp16 > 0  # smaller, not zero
    spread, spread_fp16 = bf16 * long**0.5, fp16 * long**0.5
    ratios = in_bf16[torch.randint(tokens, (200, long))].sum(-1).exp()

    # What a policy gradient makes of samples of another policy.
    importance_correction()  # weighed it is right on average; a cap brings some bias back, and calms it
    sequence_ratio()  # weights of whole texts give the true gradient, those of tokens do not

    assert torch.tensor(1e-8).half() == 0 != torch.tensor(1e-8).bfloat16()  # fp16 needs a loss scale again
    assert torch.tensor(1e5).half().isinf()
    worth = ratios.sum() ** 2 / ratios.square().sum() / len(ratios)
