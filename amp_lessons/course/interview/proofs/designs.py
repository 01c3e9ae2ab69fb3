"""Calculations behind the rounds of system design: one function per round, for all of its stages."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import measure, parallel
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


class _Block(nn.Module):
    """A block of a decoder: attention and two layers of four times the width, each behind its norm."""

    def __init__(self, width: int, heads: int = 8, norm: Callable[[int], nn.Module] = _FusedNorm) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(norm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = (
            nn.Linear(width, 4 * width, bias=False),
            nn.Linear(4 * width, width, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def pretrain() -> dict[str, object]:
    """Put 70 billion parameters on 512 GPUs: bytes, what crosses the nodes, and how often to save."""
    parameters, gpus, layers, width, tokens = 70 * 10**9, 512, 80, 8192, 4096
    gpu = measure.GPUS["H100 SXM"]

    def held(stage: str) -> float:
        return parallel.memory_per_rank(parameters, gpus, stage, "zero").total / 1e9

    assert torch.finfo(torch.bfloat16).max > 1e38  # the range of fp32
    assert torch.tensor(1.0).bfloat16() + 1e-3 == 1 != torch.tensor(1.0) + 1e-3  # small updates vanish
    assert torch.tensor(tokens - 1.0).bfloat16().float() != tokens - 1  # positions need more digits
    usable = 80  # GB, as it is sold
    assert usable < gpu.usable_bytes / 1e9 < 1.1 * usable
    assert held("ddp") > held("zero1") > usable > held("zero3")  # weights and gradients do not fit unsharded
    assert held("zero2") > usable
    unit = parameters // layers
    gathered = parallel.memory_per_rank(parameters, gpus, "fsdp2", "fp32", gathered_parameters=2 * unit)
    assert gathered.total / 1e9 < usable / 10
    vocabulary = 128_256
    block_gradient, logits = 4 * unit / 1e9, 4 * tokens * vocabulary / 1e9
    shape = torch.empty(tokens, vocabulary, device="meta", requires_grad=True)
    kept_by_loss: list[int] = []

    def note(x: Tensor) -> Tensor:
        kept_by_loss.append(x.nbytes)
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        loss = F.cross_entropy(shape, torch.empty(tokens, dtype=torch.long, device="meta"))
    (of_logits,) = torch.autograd.grad(loss, shape)
    assert [shape.nbytes] * 2 == [of_logits.nbytes, max(kept_by_loss)] == [round(1e9 * logits)] * 2
    on_top = block_gradient + 3 * logits  # logits, log-probabilities, gradient
    assert on_top > gathered.total / 1e9 - held("zero3")  # more than what is gathered

    # What a block keeps for the backward pass, by CUDA's kernels, in bytes per token and width.
    x = torch.randn(1, 64, 128, dtype=torch.bfloat16, requires_grad=True)
    kept = sum(measure.saved_activation_bytes(_Block(128).bfloat16(), x).values()) / x.numel()
    activations, inputs = (each * tokens * width * layers / 1e9 for each in (kept, 2))
    assert inputs + gathered.total / 1e9 + on_top < usable < activations  # so blocks are computed again

    # A reduction over all ranks, in bf16 and in fp32.
    gradients = parallel.rank_gradients(gpus)
    in_bf16, in_fp32 = (parallel.reduction(gradients, dtype) for dtype in (torch.bfloat16, torch.float32))
    assert in_fp32.relative_error < 1e-5
    assert in_bf16.size < 0.8  # towards less
    eight = parallel.reduction(gradients[:8], torch.bfloat16)
    assert eight.relative_error < 0.01  # few ranks would not notice

    # A step: six operations per parameter and token, recomputation makes eight; what each rank sends.
    batch, share, link = 4_000_000, 0.4, 50e9
    compute_s = 8 * parameters * batch / (gpus * gpu.flop_per_s["bf16"] * share)
    sent = {name: float(parallel.sent_bytes(name, 1, gpus)) for name in ("all-gather", "reduce-scatter")}
    sent_bytes = parameters * (2 * 2 * sent["all-gather"] + 4 * sent["reduce-scatter"])  # forward, backward
    # A ring for each network card: in every node a ring comes in at one GPU and leaves at the next card's.
    node, crossing = 8, torch.zeros(gpus)
    for card in range(node):
        ring = [n * node + (card + step) % node for n in range(gpus // node) for step in range(node)]
        for here, there in zip(ring, ring[1:] + ring[:1], strict=True):
            crossing[here] += here // node != there // node
    assert (crossing == 1).all()  # a rank sends in all rings, and out of its node in one
    out_bytes = sent_bytes / node
    sequences = round(batch / gpus / tokens)  # of a rank: as one micro-batch they are gathered for once
    doubled = gathered.total / 1e9 + block_gradient + sequences * (inputs + 3 * logits)
    assert doubled < usable / 2
    assert sequences * out_bytes / link > compute_s / 5  # if each sequence were one
    assert sent_bytes / link > compute_s / 2  # what dividing all by one card would say
    assert out_bytes / link < compute_s / 5
    of_nodes = {name: float(parallel.sent_bytes(name, 1, gpus // node)) for name in sent}
    tensor_parallel = parameters / node * (4 * of_nodes["all-gather"] + 4 * of_nodes["reduce-scatter"])
    assert math.isclose(tensor_parallel, out_bytes, rel_tol=0.02)  # an eighth of each layer, among nodes
    eighth = parallel.memory_per_rank(parameters // node, gpus // node, "zero2", "zero").total / 1e9
    assert held("zero2") > usable > 2 * eighth  # weights need no sharding beside it: gathered once, not twice
    whole_bytes = parameters / node * (2 * of_nodes["all-gather"] + 4 * of_nodes["reduce-scatter"])
    assert whole_bytes < 0.8 * out_bytes
    hop_s, collectives = 5e-6, 3
    latency_s = layers * collectives * (gpus - 1) * hop_s
    assert out_bytes / link / 10 < latency_s < compute_s / 10  # no reason yet

    # What is saved: fp32 weights and both moments; the interval is Young's.
    saved, nodes, per_node, between_s = 12 * parameters, gpus // 8, 2e9, 8 * 3600
    write_s = saved / (nodes * per_node)
    every_s = math.sqrt(2 * write_s * between_s)
    copied_s = saved / gpus / 25e9  # what training waits for, if a copy in the host's memory is written later
    assert write_s < math.sqrt(2 * copied_s * between_s) < every_s / 2
    weights = torch.randn(10_000)
    off = ((weights.bfloat16().float() - weights) / weights).abs().max().item()
    update = 1e-4  # of a weight, as one step moves it
    assert off > 10 * update  # a checkpoint in bf16 takes steps back
    return {
        "parameters": parameters // 10**9,
        "gpus": gpus,
        "rate": f"{gpu.flop_per_s['bf16'] / 1e12:.0f}",
        "layers": layers,
        "width": width,
        "tokens": tokens,
        "total": f"{held('ddp'):,.0f}",
        "stage_two": f"{held('zero2'):.0f}",
        "shard": f"{held('zero3'):.1f}",
        "with_unit": f"{gathered.total / 1e9:.1f}",
        "block_gradient": f"{block_gradient:.1f}",
        "vocabulary": f"{vocabulary:,}",
        "logits": f"{logits:.1f}",
        "kept": f"{kept:.0f}",
        "wide": _Block(8).up.out_features // 8,
        "activations": f"{activations:.0f}",
        "inputs": f"{inputs:.1f}",
        "sequences": sequences,
        "doubled": f"{doubled:.0f}",
        "sent": f"{sent_bytes / 1e9:.0f}",
        "link": f"{link / 1e9:.0f}",
        "out": f"{out_bytes / 1e9:.0f}",
        "node": node,
        "sending": f"{out_bytes / link:.1f}",
        "computing": f"{compute_s:.0f}",
        "hops": gpus - 1,
        "hop": f"{hop_s * 1e6:g}",
        "collectives": collectives,
        "latency": f"{latency_s:.1f}",
        "saved": f"{saved / 1e9:.0f}",
        "batch": batch // 10**6,
        "share": f"{share:.0%}",
        "per_node": f"{per_node / 1e9:g}",
        "steps": round(off / update),
        "update": f"{update:.2%}",
        "hours": between_s // 3600,
        "writing": f"{write_s:.0f}",
        "every": f"{every_s / 60:.0f}",
        "off": f"{off:.1%}",
        "spacing": f"{FORMATS['bf16'].spacing(100.0):g}",
        "logit": 100,
    }


def serve() -> dict[str, object]:
    """Read 70 billion weights and a cache of keys and values for each token that is served."""
    parameters, layers, kv_heads, head, most_ms = 70 * 10**9, 80, 8, 128, 20
    users, context = 32, 8192
    gpus, coarsest, finest = 4, 128, 16
    gpu = measure.GPUS["H100 SXM"]
    usable = 80  # GB, as it is sold
    assert usable < gpu.usable_bytes / 1e9 < 1.1 * usable
    bits = {"bf16": 16.0, "fp8": 8.0, "int4": 4 + 16 / coarsest}  # an fp16 scale for each group of weights
    gigabytes = {name: each * parameters / 8 / 1e9 for name, each in bits.items()}
    reading = {name: 1e12 * each / gpu.bytes_per_s for name, each in gigabytes.items()}  # ms, on one GPU
    assert gigabytes["bf16"] > usable > gigabytes["fp8"]
    assert reading["fp8"] > most_ms > reading["bf16"] / gpus
    assert reading["int4"] < most_ms

    per_token = 2 * layers * kv_heads * head * 2  # keys and values, in bf16
    cache = per_token * users * context / 1e9
    room = 1e9 * (usable - gigabytes["fp8"]) / per_token  # beside FP8's weights, on one GPU
    assert context < room < users * context
    assert gigabytes["bf16"] + cache < gpus * usable
    with_cache = (gigabytes["bf16"] + cache) * 1e12 / gpu.bytes_per_s / gpus
    halved = (gigabytes["bf16"] / 2 + cache / 2) * 1e12 / gpu.bytes_per_s / gpus
    assert halved < with_cache
    # The cache's scales: one large value coarsens no other in E4M3, as it does in integers
    e4m3, keys = FORMATS["fp8_e4m3"], torch.randn(64, head)
    keys[:, 5] += 30  # a channel that is large for every token

    def off(x: Tensor, scale: Tensor | float, bits: int = 8) -> float:
        """Return the error of all channels but that one, in E4M3 or in four-bit integers."""
        codes = (x / scale).clamp(-e4m3.max, e4m3.max).to(torch.float8_e4m3fn).float()
        stored = codes * scale if bits == 8 else (x / scale).round().clamp(-8, 7) * scale
        others = torch.arange(head) != 5
        return ((stored - x)[:, others].norm() / x[:, others].norm()).item()

    whole, each_token = keys.abs().max(), keys.abs().amax(1, keepdim=True)
    assert math.isclose(off(keys, whole / e4m3.max), off(keys, each_token / e4m3.max), rel_tol=0.1)
    assert off(0.003 * keys, 1.0) > 2 * off(0.003 * keys, 0.003 * whole / e4m3.max)  # subnormal
    assert (100 * keys).clamp(max=e4m3.max).max() < 100 * whole / 4  # cut off
    assert off(keys, each_token / 7, bits=4) > 5 * off(keys, keys.abs().amax(0) / 7, bits=4)
    ridge = gpu.ridge_point("bf16")
    batch = ridge * 2 / 2  # two operations for each weight of two bytes, for each user

    # Weights in four bits: one outlier takes the steps of all that share its scale.
    weights = torch.randn(64, 128)
    outlier = 40.0
    weights[:, 0] = outlier

    def error(group: int) -> float:
        parts = weights.reshape(-1, group)
        scale = parts.abs().amax(-1, keepdim=True) / 7
        rounded = ((parts / scale).round() * scale).reshape(weights.shape)[:, 1:]
        return ((rounded - weights[:, 1:]).norm() / weights[:, 1:].norm()).item()

    assert error(coarsest) > 2 * error(finest)
    for group in (coarsest, finest):  # beside the outlier nearly all become zero, and in no other group
        lost = (weights[:, 1:group] / (outlier / 7)).round() == 0
        assert lost.float().mean() > 0.95

    # The same products, summed in one piece and in four, through some layers: which token is the largest?
    layers_of = [(torch.randn(512, 512) / 512**0.5).bfloat16() for _ in range(6)]
    head_weights, start = torch.randn(512, 2000).bfloat16(), torch.randn(2048, 512).bfloat16()

    def product(x: Tensor, weight: Tensor, pieces: int) -> Tensor:
        """Sum in fp32, as tensor cores do, piece by piece, and round once."""
        parts = zip(x.float().chunk(pieces, -1), weight.float().chunk(pieces, 0), strict=True)
        return torch.stack([a @ b for a, b in parts]).sum(0).bfloat16()

    def logits(pieces: int) -> Tensor:
        x = start
        for weight in layers_of:
            x = x + F.silu(product(x, weight, pieces))
        return product(x, head_weights, pieces)

    one, four = logits(1), logits(4)
    assert torch.equal(one, logits(1))  # the same order gives the same bits
    order_of_one = (product(start, head_weights, 1) != product(start, head_weights, 4)).float().mean().item()
    differ = (one != four).float().mean().item()
    assert differ > max(1e-3, 3 * order_of_one)  # each layer amplifies what one product hardly shows
    first, second = one.topk(2).values.unbind(-1)
    near = ((first - second) <= torch.tensor([FORMATS["bf16"].spacing(v) for v in second.tolist()])).float()
    near_share = near.mean().item()  # equal, or neighbours in bf16
    assert 0 < near_share < 0.2
    assert (first == second).any()
    wide = (start.float() @ head_weights.float()).topk(2).values
    assert (wide[:, 0] > wide[:, 1]).all()  # in fp32 ties are rare
    return {
        "parameters": parameters // 10**9,
        "bandwidth": f"{gpu.bytes_per_s / 1e12:g}",
        "rate": f"{gpu.flop_per_s['bf16'] / 1e12:.0f}",
        "most": most_ms,
        "bf16": f"{gigabytes['bf16']:.0f}",
        "fp8": f"{gigabytes['fp8']:.0f}",
        "int4": f"{gigabytes['int4']:.0f}",
        "read_bf16": f"{reading['bf16']:.0f}",
        "read_fp8": f"{reading['fp8']:.0f}",
        "room": f"{room:,.0f}",
        "read_int4": f"{reading['int4']:.0f}",
        "read_several": f"{reading['bf16'] / gpus:.0f}",
        "limit": f"{e4m3.max:g}",
        "users": users,
        "context": f"{context:,}",
        "per_token": f"{per_token / 1e3:.0f}",
        "cache": f"{cache:.0f}",
        "with_cache": f"{with_cache:.0f}",
        "halved": f"{halved:.0f}",
        "batch": f"{batch:.0f}",
        "gpus": gpus,
        "large_group": coarsest,
        "small_group": finest,
        "outlier": f"{outlier:g}",
    }


def reinforce() -> dict[str, object]:
    """Compute the log-probabilities of tokens twice, as a trainer does and as an engine does."""
    width, vocabulary, tokens = 256, 1000, 4000
    layers = [torch.randn(width, width) / width**0.5 for _ in range(12)]
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

    def apart(engine: Tensor, trainer: Tensor) -> Tensor:
        return (trainer - engine).gather(-1, drawn)[:, 0]

    bf16, fp16 = (
        apart(log_probabilities(dtype, fused=True), log_probabilities(dtype, fused=False))
        for dtype in (torch.bfloat16, torch.float16)
    )
    assert 6 < bf16.std() / fp16.std() < 10  # three bits: a factor of eight
    few = apart(
        log_probabilities(torch.bfloat16, fused=True, few_bits=True),
        log_probabilities(torch.bfloat16, fused=False),
    )
    assert few.std() > 2 * bf16.std()
    long = 1000
    spread = {name: each.std().item() * long**0.5 for name, each in (("bf16", bf16), ("fp16", fp16))}
    answers = bf16[torch.randint(tokens, (200, long))].sum(-1).exp()
    assert answers.std() > fp16[torch.randint(tokens, (200, long))].sum(-1).exp().std()

    # What a policy gradient makes of samples of another policy, on a bandit of four arms.
    logits, reward = torch.tensor([0.0, 0.2, 0.4, 0.6]), torch.tensor([1.0, 0.3, 0.5, 0.2])
    trained, sampled = logits.softmax(-1), (logits + torch.tensor([1.0, -1.0, 0.0, 0.5])).softmax(-1)

    def gradient(weights: Tensor) -> Tensor:
        """Return the mean of reward times the gradient of the log-probability, each arm so often."""
        scores = torch.eye(4) - trained
        return (weights * reward) @ scores

    true, ignored = gradient(trained), gradient(sampled)
    ratio = trained / sampled
    assert torch.allclose(gradient(sampled * ratio), true, atol=1e-6)  # in expectation
    bias = ((ignored - true).norm() / true.norm()).item()
    assert bias > 0.2
    capped = ratio.clamp(max=1.5)
    assert (
        0 < (gradient(sampled * capped) - true).norm() < (ignored - true).norm()
    )  # some of the bias is back

    def variance(weights: Tensor) -> Tensor:
        return (sampled * (weights * reward).square()).sum() - (sampled * weights * reward).sum().square()

    assert variance(capped) < variance(ratio)

    # How many samples the weights are worth.
    ratios = answers / answers.mean()
    worth = (ratios.sum() ** 2 / ratios.square().sum() / len(ratios)).item()
    small, large = torch.tensor(1e-8), torch.tensor(1e5)
    assert small.half() == 0 != small.bfloat16()  # fp16 needs a loss scale again
    assert large.half().isinf()
    assert large.bfloat16().isfinite()
    assert fp16.std() > 0  # smaller, not zero
    return {
        "layers": len(layers),
        "width": width,
        "bf16": f"{bf16.std():.1g}",
        "fp16": f"{fp16.std():.1g}",
        "few": f"{few.std():.1g}",
        "few_times": f"{few.std() / bf16.std():.1f}",
        "times": f"{bf16.std() / fp16.std():.0f}",
        "long": f"{long:,}",
        "spread": f"{spread['bf16']:.2f}",
        "spread_fp16": f"{spread['fp16']:.2f}",
        "worth": f"{worth:.0%}",
    }
