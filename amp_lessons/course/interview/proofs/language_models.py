"""Proofs of the answers about language models: decoding, routing, trainer and engine, few bits."""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import fp8, measure
from amp_lessons.course.exercises import shelf
from amp_lessons.course.material import decoder
from amp_lessons.formats import BLOCK_FORMATS, FORMATS, by_groups, relative_error

_BF16, _E4M3, _WIDTH = torch.bfloat16, torch.float8_e4m3fn, 256


def _log_probabilities(dtype: torch.dtype, parts: int, layers: int = 4) -> Tensor:
    """Return those of one token in each of 1,024 places, (16, 64), by a network of random layers."""
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(1024, _WIDTH, generator=draw)
    for layer in range(layers):
        weight = torch.randn(_WIDTH, _WIDTH, generator=draw) / _WIDTH**0.5
        product = decoder.split_product(parts)(hidden.to(dtype), weight.to(dtype)).float()
        hidden = product if layer == layers - 1 else 1.5 * product.tanh()
    return hidden.log_softmax(-1)[:, 0].view(16, 64)


def _mismatch(dtype: torch.dtype, layers: int = 4) -> Tensor:
    """Return the differences of log-probabilities, (16, 64), between two kernels."""
    return _log_probabilities(dtype, 1, layers) - _log_probabilities(dtype, 4, layers)


# --- decoding: what is read, and how often


def decode_rate(seed: int) -> None:
    """Divide a GPU's bandwidth by the bytes of all weights, each of which is read once for a token."""
    rng = random.Random(seed)
    gpu = measure.GPUS[rng.choice(["A100 SXM 80 GB", "H100 SXM", "H200 SXM", "B200 SXM", "MI300X"])]
    billions, bits, name = rng.choice([8, 13, 32]), *rng.choice([(16, "bf16"), (8, "INT8"), (4.5, "INT4")])
    gigabytes = billions * bits / 8
    assert gigabytes * 1e9 < gpu.memory_bytes
    bandwidth = gpu.bytes_per_s / 1e12
    value = 1e3 * bandwidth / gigabytes
    times = gpu.flop_per_s["bf16"] / (2 * billions * 1e9) / value
    assert times > 20


def kv_bytes(seed: int) -> None:
    """Multiply layers, heads for keys and values, their width, tokens, users and bytes."""
    rng = random.Random(seed)
    layers, width, heads = rng.choice([(32, 128, 8), (80, 128, 8), (32, 128, 32)])
    tokens, users = rng.choice([4096, 8192, 32_768]), rng.choice([8, 16, 64])
    itemsize = _BF16.itemsize
    per_token = layers * 2 * heads * width * itemsize / 1e3
    value = per_token * tokens * users / 1e6


def prefill_decode() -> None:
    """Count operations and bytes of a layer for one token and for a prompt; compare with a GPU's ridge."""
    width, prompt_tokens, ridge = 8192, 4096, measure.GPUS["H100 SXM"].ridge_point("bf16")

    def intensity(tokens: float) -> float:
        """Return operations per byte of a product of ``tokens`` rows with a square matrix of weights."""
        return 2 * tokens * width**2 / (2 * width**2 + 2 * 2 * tokens * width)

    # A mixture of experts: how many of them a batch wants whose tokens choose at random
    experts, chosen, batch, many = 128, 8, 64, 1000
    read, each = 1 - (1 - chosen / experts) ** batch, many * chosen / experts
    decode, prompt = intensity(1), intensity(prompt_tokens)
    assert decode <= 1 < intensity(each) < ridge < prompt
    # One latent vector a token and layer in place of keys and values of all heads; a window of tokens
    heads, head, latent, rotary, window, tokens = 128, 128, 512, 64, 1024, 32_768
    latent_share, window_share = (latent + rotary) / (2 * heads * head), window / tokens


# --- the same prompt, another answer


def speculative() -> None:
    """Enumerate what comes of guessing, keeping and drawing again; count tokens a reading."""
    hidden, weight = torch.randn(64, 256), torch.randn(100, 256) / 10
    weights = weight, weight + 0.05 * torch.randn(100, 256)
    target, draft = (F.linear(hidden, each).softmax(1).double() for each in weights)
    keep, lacking = (target / draft).clamp(max=1), (target - draft).clamp(min=0)
    kept = (draft * keep).sum(1, keepdim=True)
    outcome = draft * keep + (1 - kept) * lacking / lacking.sum(1, keepdim=True)
    assert torch.allclose(outcome, target)
    assert torch.allclose(kept[:, 0], 1 - (target - draft).abs().sum(1) / 2)  # 1 minus the total variation
    ahead, supposed = 4, 0.7
    per_reading = sum(supposed**guesses for guesses in range(ahead + 1))  # until the first that is refused


def temperature_zero() -> None:
    """Split a product in another way, and let a stack of layers amplify another order of its sums."""
    hidden, weight = torch.randn(64, 4096).bfloat16(), (torch.randn(256, 4096) / 64).bfloat16()
    whole, pieces = (decoder.split_product(parts)(hidden, weight) for parts in (1, 8))
    assert (whole != pieces).float().mean() > 0.1  # by the rounding of partial sums
    # By their order alone, through a stack of norm, product and residual, all in bf16 but for the sums
    layers, width = 24, 512
    stack = (torch.randn(layers, width, width) / width**0.5).bfloat16()
    start, head = torch.randn(64, width).bfloat16(), torch.randn(500, width).bfloat16()

    def logits(depth: int, parts: int) -> Tensor:
        product, x = decoder.split_product(parts, rounded=False), start
        for each in stack[:depth]:
            x = x + product(F.rms_norm(x, (width,)), each)
        return product(x, head)

    one_product, behind = (
        (logits(depth, 1) != logits(depth, 8)).float().mean().item() for depth in (0, layers)
    )
    assert behind > max(0.02, 20 * one_product)


def batch_invariance() -> None:
    """Let the number of rows choose the kernel, then fix the order; count the processors that stay idle."""
    weight = (torch.randn(256, 4096) / 64).bfloat16()
    hidden = torch.randn(64, 4096).bfloat16()

    def by_shape(x: Tensor) -> Tensor:
        """Split the sum where few rows would leave processors idle, as libraries do."""
        return decoder.split_product(8 if len(x) < 16 else 1)(x, weight)

    assert torch.equal(by_shape(hidden[:1]), by_shape(hidden[:1]))  # it is deterministic
    assert not torch.equal(by_shape(hidden[:1]), by_shape(hidden)[:1])  # and depends on its neighbours
    outputs, tile, processors = 4096, 128, 132  # an H100 has 132 multiprocessors
    busy = outputs / tile / processors


# --- trainer and engine


def _gradients_of_two_tokens() -> list[Tensor]:
    """Enumerate texts of two tokens, of two kinds each, and return mean gradients.

    The second token depends on the first, and the reward on both. First the wanted gradient, then those of an
    engine's texts weighed by the text's ratio, by each token's, by the text's but for the largest, and not.
    """
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 2, generator=draw, dtype=torch.float64, requires_grad=True)
    rewards = torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.float64)
    first, *second = logits.log_softmax(1)
    policy = first[:, None], torch.stack(second)
    engine = tuple(each.detach() for each in policy)
    shift = torch.tensor([[0.4, -0.6]], dtype=torch.float64)
    engine = (engine[0] + shift.T).log_softmax(0), (engine[1] + shift).log_softmax(1)
    drawn = (engine[0] + engine[1]).exp()
    ratios = [(now - then).detach().exp() for now, then in zip(policy, engine, strict=True)]
    meant = ((policy[0] + policy[1]).exp() * rewards).sum()
    by_text = ratios[0] * ratios[1] * (policy[0] + policy[1])
    by_token = ratios[0] * policy[0] + ratios[1] * policy[1]
    whole = ratios[0] * ratios[1]
    dropped = torch.where(whole < whole.max(), by_text, 0 * by_text)  # the text with the largest ratio
    weighed = [(drawn * rewards * each).sum() for each in (by_text, by_token, dropped, policy[0] + policy[1])]
    return [torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (meant, *weighed)]


def trainer_engine() -> None:
    """Give the same tokens log-probabilities by two orders of sums, and weigh a gradient by their ratio."""
    layers, width = 4, _WIDTH
    logarithms = _mismatch(_BF16, layers)
    length = logarithms.shape[1]
    off = (logarithms.exp() - 1).square().mean().sqrt().item()
    texts = (logarithms.sum(1).exp() - 1).square().mean().sqrt().item()
    assert texts > 3 * off > 3 * 1.3 * (_mismatch(_BF16, layers=1).exp() - 1).square().mean().sqrt()
    assert logarithms.mean().abs() < 0.1 * logarithms.std() < 0.1 * logarithms.abs().max()
    small = logarithms / 100
    plain, better, exactly = small.exp() - 1 - small, small.expm1() - small, small.double().square() / 2
    assert (plain < 0).float().mean() > 0.3
    assert math.isclose(better.mean(), exactly.mean(), rel_tol=0.01)
    wanted, of_text, _, _, unweighed = _gradients_of_two_tokens()
    assert torch.allclose(of_text, wanted)
    assert not torch.allclose(unweighed, wanted, atol=0.01)
    # A token that the mismatch moved: PPO's clip, by its ratio to the trainer's old probability or engine's
    now = torch.tensor(-1.0, requires_grad=True)

    def slope(reference: Tensor) -> float:
        ratio = (now - reference).exp()
        return torch.autograd.grad(torch.minimum(ratio, ratio.clamp(0.8, 1.2)), now)[0].item()

    assert slope(now.detach()) == 1
    assert slope(now.detach() - 0.3) == 0
    # Masters and the engine's copy in FP8, with a scale for each row
    master, step = torch.randn(64, 256), 1e-3
    scale = master.abs().amax(1, keepdim=True) / torch.finfo(_E4M3).max
    codes = [(master * (1 + step) ** steps / scale).to(_E4M3).float() for steps in (0, 1, 100)]
    same, still = ((each == codes[0]).float().mean().item() for each in codes[1:])
    assert same > 0.9 > 0.5 > still


def fp16_for_rl() -> None:
    """Compare the mismatch in both formats."""
    in_bf16, in_fp16 = (_mismatch(dtype).square().mean().sqrt().item() for dtype in (_BF16, torch.float16))
    times = in_bf16 / in_fp16
    bits, limit = round(math.log2(times)), FORMATS["fp16"].max
    assert 6 < times < 10


def importance_correction() -> None:
    """Enumerate a policy's tokens: the mean of weighed gradients, with and without a cap, and its spread."""
    weigh = shelf.find("importance_weights").solution
    logits = torch.tensor([1.0, 0.3, -0.5, -2.0, -6.0])
    engine = (logits + torch.tensor([0.1, -0.2, 0.3, -0.4, -3.0])).log_softmax(0)
    policy, rewards = logits.log_softmax(0), torch.tensor([0.0, 1.0, 0.5, 2.0, 30.0])

    def mean_and_spread(weights: Tensor) -> tuple[float, float]:
        """Return mean and standard deviation of the weighed reward over the engine's draws."""
        mean = (engine.exp() * weights * rewards).sum()
        return mean.item(), (engine.exp() * (weights * rewards - mean) ** 2).sum().sqrt().item()

    wanted = (policy.exp() * rewards).sum().item()
    without, full, capped = (
        mean_and_spread(weights)
        for weights in (torch.ones(5), weigh(policy, engine, math.inf), weigh(policy, engine, 2.0))
    )
    assert math.isclose(full[0], wanted, rel_tol=1e-5)
    assert abs(without[0] - wanted) > abs(capped[0] - wanted) > 0
    assert capped[1] < 0.5 * full[1]
    # An engine that draws from the likeliest tokens and reports what it drew from: the ratio lacks their mass
    some = torch.randn(1000).mul(3).log_softmax(0)
    ordered, order = some.exp().sort(descending=True)
    likeliest = order[ordered.cumsum(0) - ordered < 0.8]
    ratios = (some[likeliest] - some[likeliest].log_softmax(0)).exp()
    assert torch.allclose(ratios, some[likeliest].exp().sum(), rtol=1e-4)


def sequence_ratio() -> None:
    """Multiply ratios of tokens over texts of growing length; enumerate texts of two tokens for the bias."""
    per_token, texts, length, longer = 0.03, 4000, 256, 2048
    short, long, calm = (
        math.exp(-tokens * spread**2)  # of normal logarithms
        for tokens, spread in ((length, per_token), (longer, per_token), (longer, per_token / 8))
    )
    weights = (torch.randn(texts, length) * per_token).sum(1).exp()
    assert math.isclose(weights.sum() ** 2 / weights.square().sum() / texts, short, rel_tol=0.05)
    assert calm > 0.9
    wanted, of_text, of_tokens, of_kept, unweighed = _gradients_of_two_tokens()
    assert torch.allclose(of_text, wanted)
    assert 0.01 < (of_tokens - wanted).norm() < (unweighed - wanted).norm()
    assert not torch.allclose(of_kept, wanted, atol=0.01)


# --- who computes what


def online_softmax() -> None:
    """Take a softmax block by block, its weights in FP8, too; go backward from one number a row."""
    by_blocks = shelf.find("online_softmax").solution
    scores, values = (8 * torch.randn(16, 4096)).bfloat16(), torch.randn(4096, 64).bfloat16()
    blocks = zip(scores.split(128, 1), values.split(128), strict=True)
    whole = scores.double().softmax(1) @ values.double()
    assert torch.allclose(by_blocks(blocks).double(), whole, atol=1e-5)
    counted = torch.zeros((), dtype=_BF16)
    for _ in range(1000):
        counted = counted + 1
    # Weights in FP8, relative to the largest: with a scale of one and with one that fills the range
    e4m3 = FORMATS["fp8_e4m3"]
    row = (2 * torch.randn(4096)).double()
    weights, times = (row - row.max()).exp(), 2.0 ** math.floor(math.log2(e4m3.max))
    plain, scaled = ((factor * weights).float().to(_E4M3).double() == 0 for factor in (1, times))
    lost, less = ((weights[zero].sum() / weights.sum()).item() for zero in (plain, scaled))
    assert lost > 0.01 > 100 * less
    assert e4m3.smallest_subnormal is not None
    least = e4m3.smallest_subnormal / 2
    assert (plain == (weights <= least)).all()
    # Backward from one number a row, block by block, against autograd
    q, k, v, upstream = (torch.randn(64, 32, dtype=torch.float64) for _ in range(4))
    q.requires_grad_()
    attended = (q @ k.T).softmax(1) @ v
    (wanted,) = torch.autograd.grad(attended, q, upstream)
    log_sum, per_row = (q @ k.T).logsumexp(1, keepdim=True), (upstream * attended).sum(1, keepdim=True)
    found = torch.zeros_like(q)
    for keys, some in zip(k.split(16), v.split(16), strict=True):
        again = (q @ keys.T - log_sum).exp()
        found = found + again * (upstream @ some.T - per_row) @ keys
    assert torch.allclose(found, wanted)
    decay = 0.999
    assert torch.tensor(decay).bfloat16() == 1


def flash_bias() -> None:
    """Round sums of two bf16 numbers of one sign and a small rest to bf16: where do the errors point?"""
    values = -(2 + 2 * torch.rand(20_000, 2)).bfloat16().double()
    small = 0.003 * torch.rand(20_000).double()  # the weight of other keys, with values of the same kind
    rest = -small * (2 + 2 * torch.rand(20_000)).double()

    def bias(sums: Tensor) -> float:
        """Return the mean relative error of rounding to bf16, over its mean magnitude."""
        errors = (sums.float().bfloat16().double() - sums) / sums.abs()
        return (errors.mean() / errors.abs().mean()).item()

    sums, below_one = values.sum(1), ((0.5 + 0.4 * torch.rand(20_000, 2)).double() * values).sum(1)
    assert bias(sums + rest) < -0.3
    assert bias(-sums - rest) > 0.3
    assert abs(bias(sums)) < 0.05  # middles alone go to the even neighbour
    assert abs(bias(below_one + rest)) < 0.05  # and weights below one put sums anywhere
    assert abs(bias((sums + rest) / (2 + small))) < 0.05  # divided before it is rounded


def head_fp32() -> None:
    """Round logits in the head, cast behind it, or compute the head in fp32; compare log-probabilities."""
    hidden, weight = torch.randn(64, 1024).bfloat16(), (torch.randn(4096, 1024) * 0.15).bfloat16()
    exact = F.linear(hidden.double(), weight.double()).log_softmax(1)
    rounded, in_fp32 = F.linear(hidden, weight), F.linear(hidden.float(), weight.float())
    errors = [
        (found.double() - exact).abs().mean()
        for found in (rounded.log_softmax(1), rounded.float().log_softmax(1), in_fp32.log_softmax(1))
    ]
    assert errors[0] > 1.2 * errors[1] > 1000 * errors[2]
    logit = 20
    spacing = FORMATS["bf16"].spacing(logit)
    probability = math.exp(spacing / 2) - 1
    # DPO: sums over texts of 200 tokens
    of_texts = (-4 * torch.rand(4, 200)).sum(1)
    assert all(FORMATS["bf16"].spacing(abs(each)) >= 1 for each in of_texts.tolist())
    gaps = []
    for dtype in (torch.float16, torch.float32):
        pairs = {tenth / 10: torch.tensor([0.0, -tenth / 10], dtype=dtype) for tenth in range(2000)}
        gaps.append(next(gap for gap, pair in pairs.items() if pair.softmax(0)[1] == 0))
        lost = pairs[gaps[-1]].requires_grad_()
        (gradient,) = torch.autograd.grad(lost.softmax(0)[1].log(), lost)
        assert gradient.isnan().any()
        assert math.isclose(lost.log_softmax(0)[1].item(), -gaps[-1], rel_tol=1e-3)


def router_fp32() -> None:
    """Choose two of 64 experts by scores that are kept in bf16, in fp32, and computed in fp64."""
    before, weight = torch.randn(8192, 1024), (torch.randn(64, 1024) / 32).bfloat16()
    hidden = before.bfloat16()

    def chosen(scores: Tensor) -> Tensor:
        return scores.topk(2, dim=1).indices.sort(1).values

    wanted = chosen(F.linear(hidden.double(), weight.double()))
    in_bf16, in_fp32 = F.linear(hidden, weight), F.linear(hidden.float(), weight.float())
    unrounded = F.linear(before, weight.float())
    others, kept, moved = (
        (chosen(scores) != wanted).any(1).float().mean().item() for scores in (in_bf16, in_fp32, unrounded)
    )
    assert others > 0.005 > 10 * kept
    assert moved > 0.002  # by hidden states that were rounded before
    a, b = hidden[:, 0], weight[0, 0]
    assert torch.equal(a.double() * b.double(), (a.float() * b.float()).double())
    experts, tokens = 128, 10_000  # popularity one over the rank, one expert a token
    popular = 1 / torch.arange(1.0, experts + 1)
    # A block that holds tokens of two experts rounds one by the scale of the other
    mxfp8 = BLOCK_FORMATS["mxfp8_e4m3"]
    shared = torch.cat([torch.full((1, 16), 1e-4), torch.full((1, 16), 1e2)], 1)
    assert mxfp8.quantize(shared).dequantize()[0, 0] == 0
    rare = tokens * popular[-1] / popular.sum()


def z_loss() -> None:
    """Let logits drift by a constant: what cross-entropy and bf16 say; then let a z-loss pull them back."""
    logits, labels = torch.randn(64, 500), torch.randint(500, (64,))
    drift = 100
    bias = torch.full((1,), float(drift), requires_grad=True)  # the direction that cross-entropy does not see
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits.double() + bias.double(), labels), bias)
    assert abs(gradient.item()) < 1e-6
    near, far = (
        (F.cross_entropy(each.bfloat16().float(), labels) - F.cross_entropy(logits, labels)).abs().item()
        for each in (logits, logits + drift)
    )
    assert far > 5 * near
    for _ in range(100):
        loss = (logits + bias).logsumexp(1).square().mean()
        bias = bias - 0.1 * torch.autograd.grad(loss, bias)[0]
    assert (logits + bias).logsumexp(1).mean().abs() < 0.1
    spacing = FORMATS["bf16"].spacing(float(drift))


def qk_norm() -> None:
    """Let the weights of queries and keys grow: scores and attention's gradient with a norm and without."""
    x, width, times = torch.randn(64, 128), 64, 4
    bound = width**0.5
    query, key = torch.randn(2, width, 128) / 128**0.5

    def scores(factor: float, normalise: bool) -> Tensor:
        q, k = (F.linear(x, factor * weight) for weight in (query, key))
        q, k = ((F.rms_norm(each, (width,)) if normalise else each) for each in (q, k))
        return q @ k.T / bound

    assert torch.allclose(scores(2, False), times * scores(1, False), rtol=1e-4, atol=1e-5)
    assert scores(100, True).abs().max() <= bound + 1e-3

    def slope(factor: float) -> float:
        """Return how much attention answers to its scores: p (1 - p), summed."""
        weights = scores(factor, False).softmax(1)
        return (weights * (1 - weights)).sum(1).mean().item()

    assert slope(10) < 0.2 * slope(1)  # nearly one-hot: hardly a gradient
    large = 400
    spacing = FORMATS["bf16"].spacing(large)


# --- few bits


def int4_groups() -> None:
    """Quantise a matrix with outliers by rows and by groups, and a layer by its output; count questions."""
    weight, outlier, size, larger = torch.randn(64, 4096), 40, 32, 128
    bits, coarse, codes = 4 + 16 / size, 4 + 16 / larger, 2**4
    weight[:, 7] = outlier  # an input whose weights are large
    others = torch.arange(4096) != 7
    by_row, by_group = (by_groups(weight, 4, each).dequantize()[:, others] for each in (None, size))
    assert (by_row == 0).float().mean() > 0.99
    group_error = relative_error(by_group, weight[:, others])
    # GPTQ: column by column, each error moved into the columns that follow
    inputs = torch.randn(256, 4) @ torch.randn(4, 32) + 0.3 * torch.randn(256, 32)  # alike, as inputs are
    layer = torch.randn(8, 32)
    scale = layer.abs().amax(1, keepdim=True) / 3

    def rounded(w: Tensor) -> Tensor:
        return (w / scale).round().clamp(-4, 3) * scale

    hessian = inputs.T @ inputs
    hessian += 0.01 * hessian.diag().mean() * torch.eye(32)
    factor, rest = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True), layer.clone()
    for column in range(32):
        error = rest[:, column] - rounded(rest)[:, column]
        rest[:, column] -= error
        rest[:, column + 1 :] -= torch.outer(error / factor[column, column], factor[column, column + 1 :])
    nearest, gptq = (relative_error(inputs @ w.T, inputs @ layer.T) for w in (rounded(layer), rest))
    assert gptq < 0.7 * nearest
    # How many questions show a loss, with a power at a level: answered by both models, or by one each
    flips, loss, right, level, power = 0.06, 0.01, 0.7, 0.05, 0.8
    beyond, reached = torch.distributions.Normal(0, 1).icdf(torch.tensor([1 - level / 2, power])).tolist()
    paired = round((beyond + reached) ** 2 * (flips - loss**2) / loss**2, -2)
    unpaired = 2 * (beyond + reached) ** 2 * right * (1 - right) / loss**2  # for each model
    assert unpaired > 2.5 * paired
    # Numbers of one sign in four bits, about zero or with a zero point
    hidden = torch.randn(64, 256).relu()
    symmetric, shifted = (
        relative_error((hidden / step).round() * step, hidden)
        for step in (hidden.max() / 7, hidden.max() / 15)
    )


def w4_or_w8() -> None:
    """Compare the time of a layer by its roofline, and the error of activations in 8 bits with an outlier."""
    gpu, width = measure.GPUS["H100 SXM"], 8192
    bf16, eight = gpu.flop_per_s["bf16"], gpu.flop_per_s["fp8_e4m3"]

    def seconds(tokens: float, weight_bytes: float, rate: float) -> float:
        """Return what the slower of arithmetic and reading the weights takes."""
        return max(2 * tokens * width**2 / rate, weight_bytes * width**2 / gpu.bytes_per_s)

    writing, prompt = (
        [seconds(tokens, size, rate) for size, rate in ((2, bf16), (4.5 / 8, bf16), (1, eight))]
        for tokens in (1, 8192)
    )
    assert prompt[0] == prompt[1]
    bound4, cross = (size * bf16 / (2 * gpu.bytes_per_s) for size in (4.5 / 8, 1))

    def faster(tokens: float) -> float:
        """Return how many times as fast FP8 is as INT4 weights in bf16 products."""
        return seconds(tokens, 4.5 / 8, bf16) / seconds(tokens, 1, eight)

    assert faster(0.99 * cross) < 1 < faster(1.01 * cross)
    # A channel of outliers, with a scale per token, by the error of all others; and rotated
    x, weight = torch.randn(512, 256), torch.randn(128, 256)
    x[:, 3] *= 100
    others = torch.arange(256) != 3
    integers, floats = by_groups(x, 8, None), fp8.quantize(x, fp8.Cast(block=fp8.ROW))
    of_int8, of_fp8 = (relative_error(q.dequantize()[:, others], x[:, others]) for q in (integers, floats))
    assert of_int8 > 3 * of_fp8
    rotation = torch.linalg.qr(torch.randn(256, 256)).Q
    assert torch.allclose((x @ rotation) @ (weight @ rotation).T, x @ weight.T, rtol=1e-3, atol=1e-2)
    back = by_groups(x @ rotation, 8, None).dequantize() @ rotation.T
    assert relative_error(back[:, others], x[:, others]) < 0.5 * of_int8
    most, prompt8 = faster(8192), prompt[0] / prompt[2]
    write4, write8 = (writing[0] / each for each in writing[1:])


def kv_fp8() -> None:
    """Cast keys and values to E4M3 and to INT4, with a large channel of keys and two kinds of scales."""
    query, key, value = torch.randn(3, 256, 64)
    key[:, 5] += 30  # keys have channels that are large for every token
    limit, normal = torch.finfo(_E4M3).max, torch.finfo(_E4M3).smallest_normal
    in_bf16 = _BF16.itemsize

    def attention(key: Tensor, value: Tensor) -> Tensor:
        return (query @ key.T / 8).softmax(1) @ value

    def error(key_now: Tensor, value_now: Tensor) -> float:
        return relative_error(attention(key_now, value_now), attention(key, value))

    def cast(x: Tensor, scale: Tensor) -> Tensor:
        return (x / scale).clamp(-limit, limit).to(_E4M3).float() * scale

    one, filling = torch.ones(()), key.abs().max() / limit
    assert error(key, cast(value, one)) < 0.03 < error(cast(key, one), value)  # keys cost more
    assert 0.5 < error(cast(key, one), value) / error(cast(key, filling), value) < 2  # a scale matters little
    loud = key * 1000 / key.max()  # but outside the normal numbers
    for x in (0.003 * value, loud):
        assert relative_error(cast(x, one), x) > 3 * relative_error(cast(x, x.abs().max() / limit), x)
    per_token, per_channel = (by_groups(key, 4, None), by_groups(key.T.contiguous(), 4, None))
    assert error(per_token.dequantize(), value) > 1.2 * error(per_channel.dequantize().T, value)


def qlora_dtypes() -> None:
    """Add up small steps in two dtypes, merge an adapter into four bits, and count bits of NF4."""
    ones, small = torch.ones(1000), 1e-4
    assert (ones.bfloat16() - small).equal(ones.bfloat16())
    # Merged into the base and rounded again: the effect on the output, against the adapter's own
    base = by_groups(torch.randn(64, 64) / 8, 4, 32).dequantize().bfloat16().float()
    x, learned = torch.randn(256, 64), 0.01 * torch.randn(64, 8) @ torch.randn(8, 64) / 8
    requantised, in_16_bits = (
        relative_error(x @ (merged - base).T, x @ learned.T)
        for merged in (by_groups(base + learned, 4, 32).dequantize(), (base + learned).bfloat16().float())
    )
    assert requantised > 0.9 > 5 * in_16_bits
    # NF4: codes at quantiles of a normal distribution, or 16 at even steps, in blocks with a scale each
    block = 64
    normal = torch.distributions.Normal(0.0, 1.0)
    ends = (1 / 32 + 1 / 30) / 2  # as its authors leave out of either tail
    halves = [normal.icdf(torch.linspace(1 - ends, 0.5, n)[:-1]) for n in (9, 8)]
    quantiles = torch.cat([halves[0], -halves[1], torch.zeros(1)]).sort().values
    drawn = torch.randn(500, block)

    def error(codes: Tensor) -> float:
        amax = drawn.abs().amax(1, keepdim=True)
        nearest = (drawn[..., None] / amax[..., None] - codes).abs().argmin(-1)
        return relative_error(codes[nearest] * amax, drawn)

    nf4, even = error(quantiles / quantiles.max()), error(torch.linspace(-1, 1, 16))
    assert nf4 < 0.95 * even
    billions, share = 65, 0.01
    scales, twice = 32 / block, 8 / block + 32 / (block * 256)
    whole, quantised = billions * 16, billions * (4.5 / 8 + share * 16)


def bf16_decay() -> None:
    """Multiply weights by 1 - 1e-5, find the smallest decay that moves any, and ask PyTorch's AdamW."""
    weights, decay, steps = torch.randn(10_000).bfloat16(), 1e-5, 10_000
    assert torch.equal(weights * (1 - decay), weights)  # and so at every later step
    numbers = torch.arange(0x3F80, 0x4000, dtype=torch.int16).view(_BF16)  # all from 1 to 2
    smallest = next(k for k in range(1, 100) if not torch.equal(numbers * (1 - k * 1e-4), numbers))

    def left(decay: float, *, fused: bool) -> float:
        """Return how much of the start is left with gradients that are noise."""
        draw = torch.Generator().manual_seed(0)
        start = (0.05 * torch.randn(5000, generator=draw)).bfloat16()
        weight = nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([weight], 1e-3, weight_decay=decay, foreach=not fused, fused=fused)
        for _ in range(1000):
            weight.grad = torch.randn(5000, generator=draw).bfloat16()
            optimizer.step()
        return (weight.detach().double() @ start.double() / start.double().square().sum()).item()

    foreach, fused = (left(0.0, fused=which) - left(0.1, fused=which) for which in (False, True))
    assert abs(foreach) < 0.01 < 0.05 < fused
    exact, least = 1 - (1 - decay) ** steps, smallest * 1e-4


# --- optimizers, compilers, other formats


def muon_bf16() -> None:
    """Run Muon's five steps in fp32 and bf16; find from which size on a singular value runs away."""

    def newton_schulz(matrix: Tensor, dtype: torch.dtype, push: float = 1) -> Tensor:
        x = (matrix / matrix.norm()).to(dtype)
        for step in range(5):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
            x = x * push if step == 2 else x
        return torch.linalg.svdvals(x.double())

    plain, fp32 = torch.randn(128, 256), torch.float32
    values, rounded = newton_schulz(plain, fp32), newton_schulz(plain, _BF16)
    low, high, added = values.min(), values.max(), (values - rounded).abs().max()
    assert added < 0.1 * (high - low)
    for push in (0.95, 1.05):  # what is off by some per cent after three steps comes back into the band
        pushed = newton_schulz(plain, fp32, push)
        assert 0.6 < pushed.min() < pushed.max() < 1.25
    sizes = torch.linspace(1e-3, 1.4, 100_001).double()  # of a singular value, on which a step acts alone
    after = sizes.clone()
    for _ in range(40):
        after = 3.4445 * after - 4.7750 * after**3 + 2.0315 * after**5
    limit = sizes[~(after.abs() < 2)].min().item()


def eight_bit_moments() -> None:
    """Store second moments of many sizes in 8 bits: by even steps, and by codes with an exponent."""
    first = torch.randn(64, 256) * torch.logspace(-4, 0, 256)
    second = first.square()
    amax = second.amax(1, keepdim=True)
    even = (second / amax * 255).round() / 255 * amax
    e5m2 = FORMATS["fp8_e5m2"]
    floating = (second / amax * e5m2.max).to(torch.float8_e5m2).float() / e5m2.max * amax
    assert (first.abs() / (even.sqrt() + 1e-8)).max() > 1e6  # Adam's step, in learning rates
    assert (even == 0).float().mean() > 0.5 > (floating == 0).float().mean()
    second[0, 0] = 1e4  # one huge gradient
    assert ((second / second.max() * 255).round()[1:] == 0).all()
    whole, left = 2 * 4, 2 * (1 + 4 / 256)


def compile_casts() -> None:
    """Round after each of a chain of operations, as eager mode does, and once, as a fused kernel does."""
    x, y, z = torch.randn(3, 100_000).bfloat16()

    def chain(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x * torch.sigmoid(y) + z

    eager = chain(x, y, z)
    fused = chain(x.float(), y.float(), z.float()).bfloat16()
    exact = chain(x.double(), y.double(), z.double())
    assert relative_error(eager.double(), exact) > 1.2 * relative_error(fused.double(), exact)
    apart = (eager.double() - fused.double()).abs() / fused.double().abs().clamp(min=1e-6)
    assert apart.max() > 0.5  # where terms cancel


def fp16_served() -> None:
    """Let a residual stream outgrow fp16, see what the norm makes of it, and divide what is added."""
    stream = (torch.randn(32, 4, 256) * 5e3).sum(0)  # the outputs of 32 blocks
    limit = FORMATS["fp16"].max
    assert F.rms_norm(stream.half().float(), (256,)).isnan().any()  # inf over inf
    # A model whose blocks read the stream through a norm, and all that is added divided by 64
    weights = torch.randn(3, 256, 256)

    def model(x: Tensor, divisor: float) -> Tensor:
        x, eps = x / divisor, 1e-5 / divisor**2
        for weight in weights:
            x = x + F.linear(F.rms_norm(x, (256,), eps=eps), weight) / divisor
        return x * divisor

    for start in (stream, 0.02 * torch.randn(32, 256)):
        assert relative_error(model(start, 64), model(start, 1)) < 1e-4
    assert (stream / 64).half().isfinite().all()
