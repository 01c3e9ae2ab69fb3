"""Proofs of the answers about language models: decoding, routing, trainer and engine, few bits."""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons import autocast, measure
from amp_lessons.course.exercises import shelf
from amp_lessons.course.material import decoder
from amp_lessons.formats import BLOCK_FORMATS, FORMATS

_BF16 = torch.bfloat16


def _split_product(x: Tensor, weight: Tensor, parts: int, *, rounded: bool = True) -> Tensor:
    """Multiply as a kernel with split-K does: ``parts`` sums, each ``rounded`` to their dtype or not."""
    return decoder.split_product(parts, rounded=rounded)(x, weight)


def _log_probabilities(dtype: torch.dtype, parts: int, layers: int = 4) -> Tensor:
    """Return those of one token in each of 1,024 places, (16, 64), by a network of random layers."""
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(1024, 256, generator=draw)
    for layer in range(layers):
        weight = torch.randn(256, 256, generator=draw) / 16
        product = _split_product(hidden.to(dtype), weight.to(dtype), parts).float()
        hidden = product if layer == layers - 1 else 1.5 * product.tanh()
    return hidden.log_softmax(-1)[:, 0].view(16, 64)


def _mismatch(dtype: torch.dtype, layers: int = 4) -> Tensor:
    """Return the differences of log-probabilities, (16, 64), between two kernels."""
    return _log_probabilities(dtype, 1, layers) - _log_probabilities(dtype, 4, layers)


# --- decoding: what is read, and how often


def decode_rate(seed: int) -> dict[str, object]:
    """Divide a GPU's bandwidth by the bytes of all weights, each of which is read once for a token."""
    rng = random.Random(seed)
    gpu = measure.GPUS[rng.choice(["A100 SXM 80 GB", "H100 SXM", "H200 SXM", "B200 SXM", "MI300X"])]
    billions, bits, name = rng.choice([8, 13, 32]), *rng.choice([(16, "bf16"), (8, "INT8"), (4.5, "INT4")])
    gigabytes = billions * bits / 8
    assert gigabytes * 1e9 < gpu.memory_bytes
    rate = gpu.bytes_per_s / (gigabytes * 1e9)
    arithmetic = gpu.flop_per_s["bf16"] / (2 * billions * 1e9)
    assert arithmetic > 20 * rate

    def tokens_per_second(users: int) -> float:
        """Return what all users together get: they share a reading, and each needs arithmetic of its own."""
        return users / max(1 / rate, users / arithmetic)

    assert tokens_per_second(2) == 2 * tokens_per_second(1)  # as two tokens do that one user has guessed
    gpus = 4  # each reads its share of the weights, at the same time
    assert math.isclose(1 / (gigabytes * 1e9 / gpus / gpu.bytes_per_s), gpus * rate)
    embedding = torch.randn(1000, 64)
    (looked_up,) = F.embedding(torch.tensor([7]), embedding)
    assert looked_up.nbytes == embedding.nbytes / 1000  # a look-up reads one row
    return {
        "gpu": gpu.name,
        "billions": billions,
        "format": name,
        "bits": f"{bits:g}",
        "gigabytes": f"{gigabytes:.1f}",
        "bandwidth": f"{gpu.bytes_per_s / 1e12:.2f}",
        "rate": f"{rate:.0f}",
        "times": f"{arithmetic / rate:.0f}",
        "value": rate,
    }


def kv_bytes(seed: int) -> dict[str, object]:
    """Multiply layers, heads for keys and values, their width, tokens, users and bytes."""
    rng = random.Random(seed)
    layers, width, heads = rng.choice([(32, 128, 8), (80, 128, 8), (32, 128, 32)])
    tokens, users = rng.choice([4096, 8192, 32_768]), rng.choice([8, 16, 64])
    cache = [torch.empty(heads, 1, width, dtype=_BF16) for _ in range(2)]  # of one layer and token
    per_token = layers * sum(each.nbytes for each in cache)
    gigabytes = per_token * tokens * users / 1e9
    assert per_token == 2 * layers * heads * width * 2
    assert sum(each.to(torch.float8_e4m3fn).nbytes for each in cache) * layers == per_token / 2
    return {
        "layers": layers,
        "heads": heads,
        "width": width,
        "tokens": f"{tokens:,}",
        "users": users,
        "itemsize": _BF16.itemsize,
        "per_token": f"{per_token / 1e3:.0f}",
        "gigabytes": f"{gigabytes:.1f}",
        "value": gigabytes,
    }


def prefill_decode() -> dict[str, object]:
    """Count operations and bytes of a layer for one token and for a prompt; compare with a GPU's ridge."""
    gpu, width = measure.GPUS["H100 SXM"], 8192
    ridge, prompt = gpu.ridge_point("bf16"), 4096

    def intensity(tokens: int, weight_bytes: float = 2) -> float:
        """Return operations per byte of a product of ``tokens`` rows with a square matrix of weights."""
        moved = weight_bytes * width**2 + 2 * 2 * tokens * width
        return 2 * tokens * width**2 / moved

    assert 0.9 < intensity(1) <= 1
    assert intensity(prompt) > 3 * ridge
    enough = next(tokens for tokens in range(1, 10_000) if intensity(tokens) >= ridge)
    assert math.isclose(enough, ridge, rel_tol=0.1)  # but for inputs and outputs, as many tokens as the ridge

    def seconds(tokens: int, weight_bytes: float, rate: float) -> float:
        """Return what the slower of arithmetic and memory takes."""
        operations = 2 * tokens * width**2
        return max(operations / rate, operations / intensity(tokens, weight_bytes) / gpu.bytes_per_s)

    fp8, bf16 = gpu.flop_per_s["fp8_e4m3"], gpu.flop_per_s["bf16"]
    int4 = 4.5 / 8
    assert seconds(1, int4, bf16) < 0.3 * seconds(1, 2, bf16)  # fewer bytes help decoding
    assert seconds(1, 2, fp8) == seconds(1, 2, bf16)  # faster arithmetic does not
    assert seconds(4096, int4, bf16) == seconds(4096, 2, bf16)  # and for a prompt it is the other way round
    assert seconds(4096, 1, fp8) < 0.6 * seconds(4096, 2, bf16)
    assert seconds(32, 2, bf16) < 1.1 * seconds(1, 2, bf16)  # users share a reading
    # A mixture of experts: how many of them a batch wants whose tokens choose at random
    experts, chosen, batch = 128, 8, 64
    wanted = torch.zeros(200, experts, dtype=torch.bool)
    for _ in range(batch):
        wanted.scatter_(1, torch.rand(200, experts).topk(chosen).indices, True)
    read = 1 - (1 - chosen / experts) ** batch
    assert math.isclose(wanted.float().mean().item(), read, rel_tol=0.01)
    many = 1000
    tokens_each = many * chosen / experts
    assert intensity(round(tokens_each)) < ridge / 3
    token = torch.empty(width)  # it goes to its experts in FP8, and each of them returns one in bf16
    sent, returned = (chosen * token.to(each).nbytes / 1e3 for each in (torch.float8_e4m3fn, _BF16))
    assert returned == 2 * sent
    # One latent vector a token and layer in place of keys and values of all heads; a window of tokens
    heads, grouped, head, latent, rotary, window, tokens = 128, 8, 128, 512, 64, 1024, 32_768
    rounded = torch.randn(latent).bfloat16()  # what is cached
    nudged = rounded.clone()
    nudged[0] = torch.nextafter(nudged[0], torch.tensor(torch.inf, dtype=_BF16))
    moved = torch.randn(2 * 4 * head, latent) @ (nudged.float() - rounded.float())
    assert (moved.view(8, head) != 0).any(1).all()  # a rounding enters every head's keys and values
    # A score of a query and of a key made from the latent: the matrix goes over to the query's side, once for
    # all keys; with keys turned by their places it would have to be another one for each place
    query, up, vector = torch.randn(head), torch.randn(head, latent), rounded.float()
    torch.testing.assert_close(query @ (up @ vector), (query @ up) @ vector, rtol=1e-4, atol=1e-2)

    def turned(x: Tensor, place: int) -> Tensor:
        pairs, angles = torch.view_as_complex(x.view(-1, 2)), place * 10_000.0 ** -torch.linspace(0, 1, 64)
        return torch.view_as_real(pairs * torch.polar(torch.ones(64), angles)).flatten()

    columns = up.T[:8].contiguous()
    here, there = (query @ torch.stack([turned(each, place) for each in columns], 1) for place in (0, 1))
    assert not torch.allclose(here, there, rtol=0.1)
    return {
        "many": f"{many:,}",
        "each": f"{tokens_each:.0f}",
        "sent": f"{sent:.0f}",
        "returned": f"{returned:.0f}",
        "prompt_tokens": f"{prompt:,}",
        "width": f"{width:,}",
        "heads": heads,
        "grouped": grouped,
        "head": head,
        "grouped_share": f"{(latent + rotary) / (2 * grouped * head):.0%}",
        "experts": experts,
        "chosen": chosen,
        "batch": batch,
        "read": f"{read:.0%}",
        "latent": latent,
        "rotary": rotary,
        "latent_share": f"{(latent + rotary) / (2 * heads * head):.1%}",
        "window": f"{window:,}",
        "window_share": f"{window / tokens:.0%}",
        "tokens": f"{tokens:,}",
        "decode": f"{intensity(1):.0f}",
        "prompt": f"{intensity(prompt):,.0f}",
        "ridge": f"{ridge:.0f}",
    }


# --- the same prompt, another answer


def speculative() -> dict[str, object]:
    """Enumerate what comes of guessing, keeping and drawing again; count tokens a reading."""
    hidden, weight = torch.randn(64, 256), torch.randn(100, 256) / 10
    target = F.linear(hidden, weight).softmax(1).double()
    quantise = shelf.find("group_quantize").solution

    def draft_of(weight: Tensor) -> Tensor:
        return F.linear(hidden, weight).softmax(1).double()

    def outcome(draft: Tensor, told: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return how often a guess is kept, and what comes out; ``told`` is the draft in the rule."""
        told = draft if told is None else told
        keep = (target / told).clamp(max=1)
        kept = (draft * keep).sum(1, keepdim=True)
        lacking = (target - told).clamp(min=0)
        return kept[:, 0], draft * keep + (1 - kept) * lacking / lacking.sum(1, keepdim=True)

    codes, scales = quantise(weight, 32)
    drafts = [weight + 0.05 * torch.randn(100, 256), codes * scales.float().repeat_interleave(32, 1)]
    shares = []
    for draft in map(draft_of, drafts):
        kept, result = outcome(draft)
        torch.testing.assert_close(kept, 1 - (target - draft).abs().sum(1) / 2)  # 1 minus the total variation
        torch.testing.assert_close(result, target)  # whatever the draft
        shares.append(kept.mean().item())
    accepted, four_bits = shares
    assert accepted != four_bits  # a draft in few bits has a rate of its own, and nothing else
    draft = draft_of(drafts[0])
    sharper = (2 * draft.log()).softmax(1)  # drawn at half the temperature, and told as if it were not
    assert (outcome(sharper, draft)[1] - target).abs().sum(1).mean() > 0.1
    torch.testing.assert_close(outcome(sharper)[1], target)
    ahead, supposed, gpu = 4, 0.7, measure.GPUS["H100 SXM"]
    per_reading = sum(supposed**kept for kept in range(ahead + 1))  # guesses until the first that is refused
    drawn = (torch.rand(50_000, ahead) < supposed).long().cumprod(1).sum(1) + 1
    assert math.isclose(drawn.float().mean().item(), per_reading, rel_tol=0.02)
    users = gpu.ridge_point("bf16") / (ahead + 1)
    rows, large = torch.randn(64, 4096).bfloat16(), (torch.randn(256, 4096) / 64).bfloat16()
    one, several = _split_product(rows, large, 8), _split_product(rows, large, 1)
    assert (
        several.gather(1, one.argmax(1)[:, None])[:, 0] < one.max(1).values
    ).any()  # a rival as likely wins
    pairs = (
        [_split_product(rows.to(dtype), large.to(dtype), parts, rounded=False) for parts in (8, 1)]
        for dtype in (torch.float32, _BF16)
    )
    in_fp32, in_bf16 = ((a != b).float().mean() for a, b in pairs)
    assert (one != several).float().mean() > 0.1  # pieces that are rounded, too, change many logits
    assert in_bf16 < 0.05 < 0.5 < in_fp32  # by order alone: what is then rounded to bf16, and what is not
    return {
        "supposed": f"{supposed:.0%}",
        "ahead": ahead,
        "rows": ahead + 1,
        "per_reading": f"{per_reading:.1f}",
        "users": f"{users:.0f}",
    }


def temperature_zero() -> dict[str, object]:
    """Repeat a product, split it in another way, and let two tokens that are nearly alike decide."""
    hidden, weight = torch.randn(64, 4096).bfloat16(), (torch.randn(256, 4096) / 64).bfloat16()
    first = _split_product(hidden, weight, 8)
    assert all(
        torch.equal(first, _split_product(hidden, weight, 8)) for _ in range(5)
    )  # rounding has no chance
    other = _split_product(hidden, weight, 1)
    differ = (first != other).float().mean().item()
    assert 0.1 < differ < 0.9
    in_fp32 = (first != _split_product(hidden, weight, 8, rounded=False)).float().mean().item()
    kept = (other != _split_product(hidden, weight, 8, rounded=False)).float().mean().item()
    assert kept < 0.05 < in_fp32  # rounded to bf16, it is the rounding of partial sums and not their order
    by_order = [_split_product(hidden.float(), weight.float(), parts, rounded=False) for parts in (1, 8)]
    order = (by_order[0] != by_order[1]).float().mean().item()
    assert order > 0.5 > 10 * kept  # in fp32 their order, too
    assert not torch.equal(other, _split_product(hidden, weight, 2))  # two GPUs, each with half of each sum
    # The same through a stack: norm, product, residual, all in bf16 but for the sums, in another order alone
    layers, width = 24, 512
    stack = (torch.randn(layers, width, width) / width**0.5).bfloat16()
    start, head = torch.randn(64, width).bfloat16(), torch.randn(500, width).bfloat16()

    def logits(depth: int, parts: int) -> Tensor:
        def product(x: Tensor, weight: Tensor) -> Tensor:
            pieces = [x.float()[:, i::parts] @ weight.float()[:, i::parts].T for i in range(parts)]
            return torch.stack(pieces).sum(0).bfloat16()

        x = start
        for each in stack[:depth]:
            x = x + product(F.rms_norm(x, (width,)), each)
        return product(x, head)

    order_alone = [(logits(depth, 1) != logits(depth, 8)).float().mean().item() for depth in (0, layers)]
    assert order_alone[1] > max(0.02, 20 * order_alone[0])  # few bits of one product, many behind a stack
    # A rival that is as likely by one order of the sum: by the other one the last bit decides
    winner, rival = first.argmax(1), first.max(1).values
    assert (other.gather(1, winner[:, None])[:, 0] < rival).any()
    # A seed is for drawing, and the likeliest token is not drawn
    chosen = []
    for seed in range(3):
        torch.manual_seed(seed)
        chosen.append(first.argmax(1))
    assert all(torch.equal(each, winner) for each in chosen)
    return {}


def batch_invariance() -> dict[str, object]:
    """Let the number of rows choose the kernel, then fix the order; count the processors that stay idle."""
    weight = (torch.randn(256, 4096) / 64).bfloat16()
    hidden = torch.randn(64, 4096).bfloat16()

    def by_shape(x: Tensor) -> Tensor:
        """Split the sum where few rows would leave processors idle, as libraries do."""
        return _split_product(x, weight, 8 if len(x) < 16 else 1)

    assert not torch.equal(by_shape(hidden[:1]), by_shape(hidden)[:1])  # it depends on its neighbours
    assert torch.equal(by_shape(hidden[:1]), by_shape(hidden[:1]))  # and is deterministic

    def fixed(x: Tensor) -> Tensor:
        """Add up each row in the same order, whatever the batch: row by row, as the simplest way."""
        return torch.cat([_split_product(row[None], weight, 1) for row in x])

    assert all(torch.equal(fixed(hidden[:rows])[0], fixed(hidden)[0]) for rows in (1, 7, 33))
    outputs, tile, processors = 4096, 128, 132  # an H100 has 132 multiprocessors
    tiles = outputs // tile
    busy, split = tiles / processors, min(1.0, 4 * tiles / processors)
    assert busy < 0.3 < 0.9 < split
    return {
        "tiles": tiles,
        "processors": processors,
        "busy": f"{busy:.0%}",
    }


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


def trainer_engine() -> dict[str, object]:
    """Give the same tokens log-probabilities by two orders of sums, and weigh a gradient by their ratio."""
    layers = 4
    logarithms = _mismatch(_BF16, layers)
    off = (logarithms.exp() - 1).square().mean().sqrt().item()
    assert 0.003 < off < 0.03
    assert off > 1.3 * (_mismatch(_BF16, layers=1).exp() - 1).square().mean().sqrt()  # it grows
    texts = logarithms.sum(1).exp() - 1
    assert texts.abs().mean() > 3 * off
    mean = (logarithms.mean().abs() / logarithms.std()).item()
    kl = ((-logarithms).exp() - 1 + logarithms).mean()  # never negative, so that nothing cancels in its mean
    assert mean < 0.1 < 1 < logarithms.abs().max() / logarithms.std()
    assert math.isclose(kl, logarithms.square().mean() / 2, rel_tol=0.1)  # of rounding alone, and above zero
    small = logarithms / 100
    exactly = small.double().expm1() - small.double()
    cancelled, kept = (
        (each - exactly).abs().mean() / exactly.mean()
        for each in (small.exp() - 1 - small, small.expm1() - small)
    )
    assert cancelled > 0.5 > 0.01 > kept
    below = [(each < 0).double().mean() for each in (small.exp() - 1 - small, exactly)]
    assert below[0] > 0.3 > below[1] == 0  # what cancels comes out below zero, and the divergence is not
    assert ((logarithms.exp() - 1 - logarithms) - (logarithms.expm1() - logarithms)).abs().mean() < 0.1 * kl
    # A gradient from draws of another policy is that of another mean
    logits = torch.tensor([1.0, 0.3, -0.5, -2.0], dtype=torch.float64, requires_grad=True)
    drawn_from = (logits.detach() + torch.tensor([0.3, -0.2, 0.3, -1.0])).softmax(0)
    rewards = torch.tensor([0.0, 1.0, 0.5, 5.0], dtype=torch.float64)
    log_policy = logits.log_softmax(0)
    with torch.no_grad():  # trainer over engine: the mean over the engine's draws is its divergence
        d = log_policy - drawn_from.log()
        divergence, turned = -(drawn_from * d).sum(), (drawn_from * ((-d).expm1() + d)).sum()
        assert torch.isclose((drawn_from * (d.expm1() - d)).sum(), divergence)
        assert not torch.isclose(turned, divergence, rtol=0.05)
    wanted, plain, weighted = (
        torch.autograd.grad(mean, logits, retain_graph=True)[0]
        for mean in (
            (log_policy.exp() * rewards).sum(),
            (drawn_from * rewards * log_policy).sum(),
            (drawn_from * (log_policy.detach().exp() / drawn_from) * rewards * log_policy).sum(),
        )
    )
    assert not torch.allclose(plain, wanted, atol=0.01)
    assert torch.allclose(weighted, wanted)
    wanted, of_text, of_tokens, _, unweighed = _gradients_of_two_tokens()
    assert torch.allclose(of_text, wanted)  # a text's ratio mends it exactly, each token's only nearly
    assert 0.01 < (of_tokens - wanted).norm() < (unweighed - wanted).norm()
    # A token that another expert moved: PPO's clip, by its ratio to the trainer's old probability or engine's
    now = torch.tensor(-1.0, requires_grad=True)
    old, by_engine = now.detach(), now.detach() - 0.3

    def slope(reference: Tensor, advantage: float = 1) -> float:
        ratio = (now - reference).exp()
        objective = torch.minimum(advantage * ratio, advantage * ratio.clamp(0.8, 1.2))
        return torch.autograd.grad(objective, now)[0].item()

    assert slope(old) == (now - old).exp() == 1  # in the first update it shows nothing of the mismatch
    again = _log_probabilities(_BF16, 1, 4)
    assert torch.equal(again, _log_probabilities(_BF16, 1, 4))  # one, by the same kernels
    assert (_log_probabilities(_BF16, 4, 4) != again).float().mean() > 0.5  # rounding, by others
    assert slope(by_engine) == 0  # moved up, with a positive advantage
    assert slope(by_engine, -1) < -1
    assert slope(now.detach() + 0.3) > 0.7  # moved down
    whole, product = (now - by_engine).exp(), (now - old).exp() * (old - by_engine).exp()
    assert torch.isclose(whole, product)
    # One kernel and dtype on both sides, and an engine whose weights are a step of SGD older
    inputs, weights = torch.randn(64, 256), torch.randn(50, 256) / 16
    of_trainer, of_engine = (
        F.linear(inputs, each).log_softmax(1)[:, 0]
        for each in (weights, weights + 0.01 * torch.randn(50, 256))
    )
    assert torch.equal(of_trainer, F.linear(inputs, weights).log_softmax(1)[:, 0])
    assert (of_trainer - of_engine).std() > 0.05  # its age is all that this ratio shows
    # Masters and the engine's copy in FP8, with a scale for each row
    master, step, amax = torch.randn(64, 256), 1e-3, torch.finfo(torch.float8_e4m3fn).max

    def sent(x: Tensor) -> Tensor:
        return (x / (master.abs().amax(1, keepdim=True) / amax)).to(torch.float8_e4m3fn).float()

    one_step, many = master * (1 + step), master * (1 + step) ** 100
    same, still = ((sent(x) == sent(master)).float().mean().item() for x in (one_step, many))
    assert same > 0.9 > 0.5 > still
    return {
        "layers": layers,
        "width": 256,
        "step": f"{step:.1%}",
        "same": f"{same:.0%}",
        "token": f"{off:.1%}",
        "text": f"{texts.abs().mean().item():.0%}",
        "length": logarithms.shape[1],
    }


def fp16_for_rl() -> dict[str, object]:
    """Compare the mismatch in both formats, and what fp16 does with large and with small numbers."""
    differences = [_mismatch(dtype).square().mean().sqrt().item() for dtype in (_BF16, torch.float16)]
    times = differences[0] / differences[1]
    assert 6 < times < 10
    assert torch.finfo(_BF16).eps / torch.finfo(torch.float16).eps == 8
    # lesson 11's decoder, untrained: its router takes other experts where two are nearly as likely
    model, (tokens, targets) = decoder.decoder(100), torch.randint(100, (2, 32, 64))
    typical, spread = [], []
    for dtype in (_BF16, torch.float16):
        trainer = decoder.only("linear", dtype)
        engine = decoder.all_in(dtype, but=("loss",), product=decoder.split_product(4))
        with torch.no_grad():
            ours, theirs = (
                decoder.log_probabilities(model, tokens, targets, how) for how in (trainer, engine)
            )
        typical.append((ours - theirs).abs().median().item())
        spread.append((ours - theirs).std().item())
    flips = spread[0] / spread[1]
    assert 6 < typical[0] / typical[1] < 10
    assert 1.5 < flips < 0.75 * typical[0] / typical[1]
    assert torch.tensor(7e4).half().isinf()
    assert torch.tensor(7e4).bfloat16().isfinite()
    gradient = torch.tensor(1e-8)
    assert gradient.half() == 0
    assert (gradient * 2**16).half() != 0
    assert gradient.bfloat16() != 0
    return {
        "times": f"{times:.0f}",
        "limit": f"{torch.finfo(torch.float16).max:g}",
        "bits": 3,
    }


def importance_correction() -> dict[str, object]:
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
    assert not weigh(policy.clone().requires_grad_(), engine, 2.0).requires_grad
    updated = (logits + 0.3 * rewards).log_softmax(0)  # behind an update, PPO's ratio is in it, too
    now, before, learnt = ((a - b).exp() for a, b in ((updated, engine), (policy, engine), (updated, policy)))
    assert torch.allclose(now, before * learnt)
    assert not torch.allclose(now, before, rtol=0.1)
    # An engine that draws from the likeliest tokens and reports what it drew from: the ratio lacks their mass
    some = torch.randn(1000).mul(3).log_softmax(0)
    ordered, order = some.exp().sort(descending=True)
    likeliest = order[ordered.cumsum(0) - ordered < 0.8]
    mass = some[likeliest].exp().sum()
    surer = torch.tensor([3.0, 0.0, 0.0]).softmax(0)  # another position, where the first token is enough
    assert surer[0] > max(0.8, mass.item() + 0.05)  # keeps another mass
    reported = some[likeliest].log_softmax(0)
    assert torch.allclose((some[likeliest] - reported).exp(), mass, rtol=1e-4)  # the same for every token
    trainer = (some + 0.1 * torch.randn(1000)).log_softmax(0)[likeliest]
    over_all, over_kept = (
        (reported.exp() * (each - reported).exp()).sum() for each in (trainer, trainer.log_softmax(0))
    )
    assert over_all < 0.9 < 0.999 < over_kept < 1.001  # a mean ratio of 1 if both are over what was kept
    flat = torch.randn(1000)
    kept = []
    for probabilities in (flat.softmax(0), (flat + 0.01 * torch.randn(1000)).softmax(0)):
        falling, places = probabilities.sort(descending=True)
        kept.append(set(places[falling.cumsum(0) - falling < 0.8].tolist()))
    assert kept[0] - kept[1]  # the trainer would keep others: to some that were drawn it gives no probability
    halved = (some / 0.5).log_softmax(0)  # a temperature of 0.5
    assert (some - halved).exp().std() > 0.1  # and temperature changes each ratio in another way
    tiny = torch.tensor([-150.0])
    assert ((tiny + 0.5).exp() / tiny.exp()).isnan()
    assert weigh(tiny + 0.5, tiny, 2.0).isfinite().all()
    return {}


def sequence_ratio() -> dict[str, object]:
    """Multiply ratios of tokens over texts of growing length; enumerate texts of two tokens for the bias."""
    per_token, texts = 0.03, 4000
    short, long = (math.exp(-length * per_token**2) for length in (256, 2048))  # of normal logarithms
    logs = torch.randn(texts, 2048) * per_token - per_token**2 / 2  # so that each ratio has a mean of 1

    def effective_share(logs: Tensor) -> float:
        """Return (sum of weights)² / sum of squares, over the number of texts."""
        weights = logs.sum(1).exp()
        return (weights.sum() ** 2 / weights.square().sum() / texts).item()

    drawn_short, drawn_long = (effective_share(logs[:, :length]) for length in (256, 2048))
    assert effective_share(logs[:, :1]) > 0.99 > short > long
    assert math.isclose(drawn_short, short, rel_tol=0.05)
    assert math.isclose(drawn_long, long, rel_tol=0.4)  # few texts count, so that a sample tells it roughly
    assert effective_share(logs / 8) > 0.9  # an eighth of the spread, as in fp16 without a router
    assert effective_share(logs / 3) < 0.9  # and a third, as with one
    whole = logs.sum(1).exp()
    kept = torch.where(whole > 3, 0.0, whole)  # trl drops a text above its cap, and weighs the others
    assert whole.median() < 0.5  # as a mean of 1 needs few large ones, most are small
    assert kept.mean() < 0.7
    assert (torch.randn(texts, 8192) * per_token - per_token**2 / 2).sum(1).exp().median() < 0.05

    wanted, of_text, of_tokens, of_kept, unweighed = _gradients_of_two_tokens()
    assert (of_tokens - wanted).norm() < (unweighed - wanted).norm()
    assert torch.allclose(of_text, wanted)
    assert not torch.allclose(of_tokens, wanted, atol=0.01)
    assert not torch.allclose(of_kept, wanted, atol=0.01)
    return {
        "per_token": f"{per_token:.0%}",
        "short": f"{short:.0%}",
        "long": f"{long:.0%}",
        "length": 256,
        "longer": "2,048",
    }


# --- who computes what


def online_softmax() -> dict[str, object]:
    """Take a softmax block by block, in fp32 and with a sum in bf16, and count what is kept."""
    by_blocks = shelf.find("online_softmax").solution
    scores, values = (8 * torch.randn(16, 4096)).bfloat16(), torch.randn(4096, 64).bfloat16()
    blocks = list(zip(scores.split(128, 1), values.split(128), strict=True))
    whole = scores.double().softmax(1) @ values.double()
    assert torch.allclose(by_blocks(iter(blocks)).double(), whole, atol=1e-5)

    # Without the factor what came before the maximum grew counts too much
    largest, total, weighted = torch.full((16, 1), -torch.inf), torch.zeros(16, 1), torch.zeros(16, 64)
    for block, rows in blocks:
        largest = torch.maximum(largest, block.float().amax(1, keepdim=True))
        exponentials = (block.float() - largest).exp()
        total, weighted = total + exponentials.sum(1, keepdim=True), weighted + exponentials @ rows.float()
    forgotten = ((weighted / total).double() - whole).norm() / whole.norm()
    assert forgotten > 0.2
    assert (torch.tensor(-torch.inf) - torch.tensor(-torch.inf)).isnan()  # a block that is masked

    counted = torch.zeros((), dtype=_BF16)
    for _ in range(1000):
        counted = counted + 1
    assert counted == 256
    assert 2 + values.shape[1] < 0.02 * scores.shape[1]  # what is kept of a row, and the row
    # Weights in FP8, relative to the largest: with a scale of one and with one that fills the range
    e4m3 = FORMATS["fp8_e4m3"]
    row = (2 * torch.randn(4096)).double()
    weights, times = (row - row.max()).exp(), 2.0 ** math.floor(math.log2(e4m3.max))
    plain, scaled = (
        (factor * weights).float().to(torch.float8_e4m3fn).double() == 0 for factor in (1, times)
    )
    lost, less = ((weights[zero].sum() / weights.sum()).item() for zero in (plain, scaled))
    assert lost > 0.01 > 100 * less
    assert e4m3.smallest_subnormal is not None
    least = e4m3.smallest_subnormal / 2
    assert (plain == (weights <= least)).all()
    # Backward from one number a row, block by block, against autograd
    q, k, v, upstream = (torch.randn(64, 32, dtype=torch.float64) for _ in range(4))
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]
    attended = (leaves[0] @ leaves[1].T).softmax(1) @ leaves[2]
    wanted = torch.autograd.grad(attended, leaves, upstream)
    log_sum, per_row = (
        (q @ k.T).logsumexp(1, keepdim=True),
        (upstream * attended.detach()).sum(1, keepdim=True),
    )
    parts, rest = [], []  # of dQ, to which each block of keys adds, and of dK and dV, which are its own
    for keys, some in zip(k.split(16), v.split(16), strict=True):
        again = (q @ keys.T - log_sum).exp()
        of_scores = again * (upstream @ some.T - per_row)
        parts.append(of_scores @ keys)
        rest.append((of_scores.T @ q, again.T @ upstream))
    found = [torch.stack(parts).sum(0), *map(torch.cat, zip(*rest, strict=True))]
    assert all(torch.allclose(one, other) for one, other in zip(found, wanted, strict=True))
    orders = [
        sum((parts[i].float() for i in order), torch.zeros(64, 32)) for order in ((0, 1, 2, 3), (3, 1, 2, 0))
    ]
    assert not torch.equal(*orders)  # what comes first is left to atomics
    # A recurrent state: its decay, its sum, and decays between tokens from cumulative sums of logarithms
    decay = 0.999
    state, exact_state = torch.zeros((), dtype=_BF16), 0.0
    for _ in range(2000):
        state, exact_state = (decay * state.float() + 1).bfloat16(), decay * exact_state + 1
    assert state < 0.5 * exact_state
    assert torch.tensor(decay).bfloat16() == 1
    logarithms = -0.05 * torch.rand(256, 64)  # of a chunk, in 64 heads

    def between(dtype: torch.dtype, apart: int = 16) -> Tensor:
        sums = [torch.zeros(64, dtype=dtype)]
        for each in logarithms.to(dtype):
            sums.append(sums[-1] + each)
        summed = torch.stack(sums).double()
        return (summed[apart:] - summed[:-apart]).exp()

    decay_off, in_fp32 = (
        (between(dtype) / between(torch.float64) - 1).abs().mean().item() for dtype in (_BF16, torch.float32)
    )
    assert decay_off > 0.01 > 1e-4 > in_fp32
    return {
        "decay": decay,
        "least": f"{least:.4f}",
        "times": f"{times:.0f}",
        "stops": f"{counted.item():.0f}",
    }


def flash_bias() -> dict[str, object]:
    """Round sums of two bf16 numbers of one sign and a small rest to bf16: where do the errors point?"""
    values = -(2 + 2 * torch.rand(20_000, 2)).bfloat16().double()
    rest = -1e-5 * torch.rand(20_000).double()

    def errors(sums: Tensor, dtype: torch.dtype = _BF16) -> Tensor:
        """Return the relative errors of rounding sums to a dtype; their mean is 0 where it is fair."""
        return (sums.float().to(dtype).double() - sums) / sums.abs()

    def bias(sums: Tensor) -> float:
        """Return the mean error over its mean magnitude."""
        return (errors(sums).mean() / errors(sums).abs().mean()).item()

    sums = values.sum(1)
    two_ones = bias(sums + rest)
    assert two_ones < -0.3  # too negative
    assert bias(-sums - rest) > 0.3  # and too positive with values of the other sign
    assert abs(bias(sums)) < 0.02  # the middles alone go to the even neighbour
    weights = 0.5 + 0.4 * torch.rand(20_000, 2).double()
    below_one = (weights * values).sum(1) + rest
    assert abs(bias(below_one)) < 0.05  # weights that are no powers of two put sums anywhere
    assert math.isclose(
        bias((sums + rest) / 2), two_ones, rel_tol=1e-6
    )  # ln 2 more subtracted changes nothing
    unlike = values[:, 0] + 0.013 * values[:, 1]
    assert abs(bias(unlike + rest)) < 0.1  # nor has a sum of unlike sizes a direction
    assert errors(sums + rest).sum().abs() > 10 * errors(below_one).sum().abs()  # it adds up
    small = 0.003 * torch.rand(20_000).double()  # the weight of other keys, with values of the same kind
    mixed, divisor = sums - small * (2 + 2 * torch.rand(20_000)).double(), 2 + small
    assert bias(mixed) < -0.3
    assert abs(bias(mixed / divisor)) < 0.05  # divided before it is rounded, as in FlashAttention's kernel
    larger = sums - small * (6 + 2 * torch.rand(20_000)).double()  # the others have larger values
    assert bias(larger / divisor) < -0.15  # the direction is back
    on_the_grid = sums == sums.float().bfloat16().double()
    spacing = 2.0 ** (sums.abs().log2().floor() - 7)
    middle = ((sums / spacing) % 1 - 0.5).abs() < 1e-9
    assert (on_the_grid ^ middle).all()
    assert errors(sums + rest, torch.float32).abs().max() < 1e-6
    return {}


def head_fp32() -> dict[str, object]:
    """Round logits in the head, cast behind it, or compute the head in fp32; compare log-probabilities."""
    hidden, weight = torch.randn(64, 1024).bfloat16(), (torch.randn(4096, 1024) * 0.15).bfloat16()
    labels, rows = torch.randint(4096, (64,)), torch.arange(64)
    exact = F.linear(hidden.double(), weight.double()).log_softmax(1)[rows, labels]

    def error(log_probabilities: Tensor) -> float:
        return (log_probabilities[rows, labels].double() - exact).abs().mean().item()

    rounded = F.linear(hidden, weight)
    all_in_bf16, behind = error(rounded.log_softmax(1)), error(rounded.float().log_softmax(1))
    in_fp32 = error(F.linear(hidden.float(), weight.float()).log_softmax(1))
    assert all_in_bf16 > 1.3 * behind > 1000 * in_fp32
    spacing = torch.nextafter(torch.tensor(20.0, dtype=_BF16), torch.tensor(30.0, dtype=_BF16)).item() - 20
    probability = math.exp(spacing / 2) - 1
    assert 0.06 < probability < 0.07
    logits = 16 + 16 * torch.rand(200_000, 2)
    exact_ones, rounded_ones = (each.double().softmax(1)[:, 0] for each in (logits, logits.bfloat16()))
    by_all = (rounded_ones / exact_ones - 1).max().item()
    assert 0.12 < by_all < math.exp(spacing) - 1 < 0.14
    # Trainer and engine, whose hidden states differ a little: heads in bf16, in fp32, and one of each
    noise = torch.randn(64, 1024)

    def apart(first: bool, second: bool, differ: float = 2**-14) -> float:
        """Return how far log-probabilities lie apart, where a head is in fp32 or not."""
        nearly = hidden.float() * (1 + differ * noise)
        both = [
            (each if in_fp32_too else each.bfloat16().float()).log_softmax(1)
            for each, in_fp32_too in (
                (F.linear(hidden.float(), weight.float()), first),
                (F.linear(nearly, weight.float()), second),
            )
        ]
        return (both[0] - both[1]).abs().mean().item()

    assert apart(True, False) > 10 * max(apart(False, False), apart(True, True))
    assert apart(True, False, 2**-6) < 1.1 * apart(False, False, 2**-6)  # not where hidden states differ
    with torch.autocast("cpu", _BF16):
        assert F.linear(hidden.float(), weight.float()).dtype == _BF16  # autocast runs the head in 16 bits
        with torch.autocast("cpu", enabled=False):
            assert F.linear(hidden.float(), weight.float()).dtype == torch.float32
    # A contrastive loss: similarities of images and captions, by a temperature
    images, captions = (F.normalize(torch.randn(256, 64) + 3 * torch.randn(64), dim=1) for _ in range(2))
    similar = images @ captions.T

    def off(temperature: float) -> float:
        in_bf16 = images.bfloat16() @ captions.bfloat16().T
        return ((in_bf16.float() - similar) / temperature).abs().max().item()

    assert off(1.0) < 0.005
    assert off(0.01) > 0.1
    # DPO: sums over texts of 200 tokens, policy and reference from the same model
    of_tokens = -4 * torch.rand(4, 200)
    texts = of_tokens.sum(1)
    assert all(FORMATS["bf16"].spacing(abs(each)) == 2 for each in texts.tolist())  # in the hundreds
    policy, reference, rounded_reference = texts, of_tokens.sum(1), of_tokens.bfloat16().sum(1).float()
    margins = [(policy - each)[:2].sub((policy - each)[2:]) for each in (reference, rounded_reference)]
    losses = [-F.logsigmoid(0.1 * margin) for margin in margins]
    assert torch.allclose(losses[0], torch.tensor(2.0).log())
    assert (losses[1] - losses[0]).abs().max() > 0.001
    gaps = {}
    for dtype in (torch.float16, torch.float32):
        pairs = [torch.tensor([0.0, -gap], dtype=dtype, requires_grad=True) for gap in range(200)]
        gaps[dtype] = next(gap for gap, pair in enumerate(pairs) if pair.softmax(0)[1] == 0)
        lost = pairs[gaps[dtype]]
        assert lost.softmax(0)[1].log() == -math.inf
        lost.softmax(0)[1].log().backward()
        assert lost.grad is not None
        assert lost.grad.isnan().any()
        assert math.isclose(lost.log_softmax(0)[1].item(), -gaps[dtype], rel_tol=1e-3)
    return {
        "gap_fp16": gaps[torch.float16],
        "gap_fp32": gaps[torch.float32],
        "logit": 20,
        "spacing": f"{spacing:g}",
        "probability": f"{probability:.0%}",
    }


def router_fp32() -> dict[str, object]:
    """Choose two of 64 experts by scores that are kept in bf16, in fp32, and computed in fp64."""
    hidden, weight = torch.randn(8192, 1024).bfloat16(), (torch.randn(64, 1024) / 32).bfloat16()

    def chosen(scores: Tensor) -> Tensor:
        return scores.topk(2, dim=1).indices.sort(1).values

    wanted = chosen(F.linear(hidden.double(), weight.double()))
    in_bf16, in_fp32 = F.linear(hidden, weight), F.linear(hidden.float(), weight.float())
    others, kept = ((chosen(each) != wanted).any(1).float().mean().item() for each in (in_bf16, in_fp32))
    assert others > 0.005 > 10 * kept
    # A product of two bf16 numbers is exact in fp32: only where the sum is rounded matters
    a, b = hidden[:, 0], weight[0, 0]
    assert torch.equal(a.double() * b.double(), (a.float() * b.float()).double())
    # Hidden states that were rounded before: no router repairs that
    before = torch.randn(8192, 1024)
    late = chosen(F.linear(before.bfloat16().float(), weight.float()))
    early = chosen(F.linear(before, weight.float()))
    moved = (late != early).any(1).float().mean().item()
    assert moved > 0.002
    experts, tokens = 128, 10_000  # popularity one over the rank, one expert a token
    popular = 1 / torch.arange(1.0, experts + 1)
    rare = (tokens * popular[-1] / popular.sum()).item()
    inputs = torch.randn(round(rare), 1024)
    assert torch.linalg.matrix_rank(inputs.T @ inputs) < 1024  # of its second moments most are not seen
    # Tokens of one expert padded with zeros: its weight's gradient, a sum over them, is the same
    fp8_rows, mx_rows = 16 // torch.float8_e4m3fn.itemsize, BLOCK_FORMATS["mxfp8_e4m3"].block_size or 0
    large_rows = 128  # of kernels with a scale for each 128 numbers, as DeepGEMM's
    seen, incoming = torch.randn(44, 64), torch.randn(44, 32)
    padded = [F.pad(each, (0, 0, 0, -len(each) % mx_rows)) for each in (seen, incoming)]
    assert len(padded[0]) % mx_rows == len(padded[0]) % fp8_rows == 0 < len(seen) % mx_rows
    assert torch.allclose(incoming.T @ seen, padded[1].T @ padded[0], atol=1e-4)
    # A block that holds tokens of two experts rounds one by the scale of the other
    block_format = BLOCK_FORMATS["mxfp8_e4m3"]
    apart = torch.cat([torch.full((1, 16), 1e-4), torch.zeros(1, 16)], 1), torch.full((1, 32), 1e2)
    shared = torch.cat([apart[0][:, :16], apart[1][:, :16]], 1)
    small = [block_format.quantize(block).dequantize()[0, 0] for block in (shared, apart[0])]
    assert small[0] == 0 < small[1]
    # What is small and adds up: the mean of probabilities, and the outputs by their weights
    chances = torch.full((4096, 64), 1 / 64, dtype=_BF16)
    added = torch.zeros(64, dtype=_BF16)
    for row in chances:
        added = added + row
    assert (added.float() < 0.1 * chances.float().sum(0)).all()
    weights, outputs = torch.rand(512, 8).softmax(1), torch.randn(512, 8, 64)
    exactly = (weights[..., None].double() * outputs.bfloat16().double()).sum(1)
    narrow, wide = torch.zeros(512, 64, dtype=_BF16), torch.zeros(512, 64)
    for i in range(8):
        narrow = narrow + weights[:, i, None].bfloat16() * outputs[:, i].bfloat16()
        wide = wide + weights[:, i, None] * outputs[:, i].bfloat16().float()
    assert (narrow - exactly).norm() > 100 * (wide - exactly).norm()
    return {
        "fp8_rows": fp8_rows,
        "mx_rows": mx_rows,
        "large_rows": large_rows,
        "experts": experts,
        "tokens": f"{tokens:,}",
        "rare": f"{rare:.0f}",
    }


def z_loss() -> dict[str, object]:
    """Let logits drift by a constant: what cross-entropy, a z-loss and bf16 say; then train them back."""
    logits, labels = torch.randn(64, 500), torch.randint(500, (64,))
    far = logits + 100
    near_loss, far_loss = F.cross_entropy(logits.double(), labels), F.cross_entropy(far.double(), labels)
    assert torch.isclose(near_loss, far_loss, rtol=1e-5)
    off = [
        (
            F.cross_entropy(each.bfloat16().float(), labels, reduction="none")
            - F.cross_entropy(each, labels, reduction="none")
        )
        .abs()
        .mean()
        .item()
        for each in (logits, far)
    ]
    assert off[1] > 20 * off[0]  # once it is rounded to bf16, whose steps are so wide there
    drift, spacing = 100, FORMATS["bf16"].spacing(100.0)
    bias = torch.full((1,), 100.0, requires_grad=True)  # the direction that cross-entropy does not see
    (gradient,) = torch.autograd.grad(F.cross_entropy(logits.double() + bias.double(), labels), bias)
    assert abs(gradient.item()) < 1e-6
    for _ in range(100):
        loss = (logits + bias).logsumexp(1).square().mean()
        bias = bias - 0.1 * torch.autograd.grad(loss, bias)[0]
    assert (logits + bias).logsumexp(1).mean().abs() < 0.1
    return {
        "drift": drift,
        "spacing": f"{spacing:g}",
    }


def qk_norm() -> dict[str, object]:
    """Let the weights of queries and keys grow: scores and attention's gradient with a norm and without."""
    x, width = torch.randn(64, 128), 64
    query, key = torch.randn(2, width, 128) / 128**0.5

    def scores(factor: float, normalise: bool) -> Tensor:
        q, k = (F.linear(x, factor * weight) for weight in (query, key))
        q, k = ((F.rms_norm(each, (width,)) if normalise else each) for each in (q, k))
        return q @ k.T / width**0.5

    assert torch.allclose(scores(2, False), 4 * scores(1, False), rtol=1e-4, atol=1e-5)
    assert torch.allclose(scores(100, True), scores(1, True), rtol=1e-3, atol=1e-3)
    assert scores(100, True).abs().max() <= width**0.5 + 1e-3
    assert scores(200, False).half().isinf().any()  # beyond fp16, and far from it with a norm
    with autocast.region("cuda", torch.float16):
        normed = F.rms_norm(x.half(), (128,))
    listed = "aten::rms_norm" in autocast.policy("cuda")  # in newer versions of PyTorch
    assert (normed.dtype == torch.float32) == listed

    def slope(factor: float, normalise: bool) -> float:
        """Return how much attention answers to its scores: p (1 - p), summed."""
        weights = scores(factor, normalise).softmax(1)
        return (weights * (1 - weights)).sum(1).mean().item()

    assert slope(10, False) < 0.2 * slope(1, False)  # nearly one-hot: hardly a gradient
    assert math.isclose(slope(10, True), slope(1, True), rel_tol=1e-3)
    large = scores(10, False).abs().max().item()
    step = torch.tensor(large).bfloat16()
    spacing = (torch.nextafter(step, torch.tensor(torch.inf, dtype=_BF16)) - step).item()
    assert spacing > 1
    return {
        "times": 4,
        "bound": f"{width**0.5:g}",
        "width": width,
        "spacing": f"{spacing:g}",
        "large": f"{large:.0f}",
    }


# --- few bits


def int4_groups() -> dict[str, object]:
    """Quantise a matrix with outliers by rows and by groups: errors, lost weights, bits."""
    quantise = shelf.find("group_quantize").solution
    weight, outlier = torch.randn(64, 4096), 40
    weight[:, 7] = outlier  # an input whose weights are large

    def stored(size: int) -> tuple[float, float]:
        """Return the error of all other weights, and which fraction of them becomes 0."""
        codes, scales = quantise(weight, size)
        back = codes * scales.float().repeat_interleave(size, 1)[:, : weight.shape[1]]
        others = torch.arange(4096) != 7
        error = (back - weight)[:, others].norm() / weight[:, others].norm()
        return error.item(), (codes[:, others] == 0).float().mean().item()

    by_row, by_group = stored(4096), stored(32)
    assert by_row[0] > 0.9 > 3 * by_group[0]
    assert by_row[1] > 0.99
    assert stored(128)[0] > by_group[0]
    # Trained with its rounding: the gradient passes as if there were none, to masters in fp32
    inputs = torch.randn(256, 4) @ torch.randn(4, 32) + 0.3 * torch.randn(256, 32)  # alike, as inputs are
    layer, qat_bits = torch.randn(8, 32), 3

    def rounded(w: Tensor, bits: int = qat_bits) -> Tensor:
        scale = layer.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        return (w / scale).round().clamp(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale

    def output_error(w: Tensor) -> float:
        return ((inputs @ (w - layer).T).norm() / (inputs @ layer.T).norm()).item()

    master, steps = layer.clone(), 200
    curvature = torch.linalg.matrix_norm(inputs, 2).square()
    for step in range(steps):
        off = inputs @ (rounded(master) - layer).T
        master -= 0.1 * (1 - step / steps) * off.T @ inputs / curvature
    nearest, trained = output_error(rounded(layer)), output_error(rounded(master))
    assert trained < 0.8 * nearest
    assert 10 * output_error(rounded(layer, 8)) < trained  # with eight bits there is nothing to win
    assert (rounded(master) - layer).norm() > (rounded(layer) - layer).norm()  # the weight is no nearer
    # GPTQ: column by column, each error moved into the columns that follow
    hessian = inputs.T @ inputs
    hessian += 0.01 * hessian.diag().mean() * torch.eye(32)
    factor, rest = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True), layer.clone()
    for column in range(32):
        error = rest[:, column] - rounded(rest)[:, column]
        rest[:, column] -= error
        rest[:, column + 1 :] -= torch.outer(error / factor[column, column], factor[column, column + 1 :])
    gptq = output_error(rest)
    assert torch.allclose(rest, rounded(rest), atol=1e-6)
    assert gptq < 0.7 * nearest
    assert gptq < 0.8 * trained  # for one layer's output, which is all that GPTQ looks at
    assert (rest - layer).norm() > (rounded(layer) - layer).norm()  # nor is it here
    # AWQ: the weights of a loud input up before they are rounded, and the input down
    loud, factors = inputs * torch.where(torch.arange(32) == 3, 30.0, 1.0), torch.ones(32)

    def scaled(factor: float) -> float:
        factors[3] = factor
        scale = (layer * factors).abs().amax(1, keepdim=True) / 3
        codes = (layer * factors / scale).round()
        return ((loud / factors) @ (codes * scale).T - loud @ layer.T).norm().item()

    assert scaled(0.5) > scaled(1) > 1.5 * scaled(2)
    # How many questions show a loss, with a power at a level: answered by both models, or by one each
    flips, loss, right, level, power = 0.06, 0.01, 0.7, 0.05, 0.8
    beyond, reached = torch.distributions.Normal(0, 1).icdf(torch.tensor([1 - level / 2, power])).tolist()
    sigmas = beyond + reached
    paired = sigmas**2 * (flips - loss**2) / loss**2
    unpaired = 2 * sigmas**2 * right * (1 - right) / loss**2  # for each model, as either sample varies
    draws = torch.rand(2000, round(paired))  # only the old one is right, only the new one
    gains = (draws < (flips + loss) / 2).double().sum(1) - (draws > 1 - (flips - loss) / 2).double().sum(1)
    assert 0.75 < (gains > beyond * (flips * paired) ** 0.5).double().mean() < 0.85
    of_old, of_new = (
        torch.distributions.Binomial(round(unpaired), torch.tensor(share)).sample((2000,))
        for share in (right, right - loss)
    )
    noise = (2 * right * (1 - right) * unpaired) ** 0.5
    assert 0.75 < (of_old - of_new > beyond * noise).double().mean() < 0.85
    assert unpaired > 2.5 * paired
    # Numbers of one sign in four bits, about zero or with a zero point; scales that leave the sum, and do not
    hidden = torch.randn(64, 256).relu()
    wide_step, fine_step = hidden.max() / 7, hidden.max() / 15
    symmetric, shifted = (
        ((hidden / each).round() * each - hidden).norm() / hidden.norm() for each in (wide_step, fine_step)
    )
    assert symmetric > 1.8 * shifted
    codes, zero, others = torch.randint(16, (4, 256)).double(), 5, torch.randn(256, 3).double()
    assert torch.allclose((codes - zero) @ others, codes @ others - zero * others.sum(0))
    tokens, channels = torch.rand(4, 1).double(), torch.rand(1, 256).double()
    assert torch.allclose((tokens * codes) @ others, tokens * (codes @ others))
    assert torch.allclose((channels * codes) @ others, codes @ (channels.T * others))  # into the weights
    bits, coarse = 4 + 16 / 32, 4 + 16 / 128
    assert quantise(weight, 32)[1].element_size() == 2
    return {
        "symmetric": f"{symmetric:.0%}",
        "shifted": f"{shifted:.0%}",
        "flips": f"{flips:.0%}",
        "loss": f"{loss:.0%}",
        "paired": f"{round(paired, -2):,.0f}",
        "outlier": outlier,
        "right": f"{right:.0%}",
        "level": f"{level:.0%}",
        "power": f"{power:.0%}",
        "unpaired": f"{round(unpaired, -3):,.0f}",
        "bits": f"{bits:g}",
        "coarse": f"{coarse:g}",
        "size": 32,
        "larger": 128,
        "group_error": f"{by_group[0]:.0%}",
        "codes": 16,
    }


def w4_or_w8() -> dict[str, object]:
    """Compare the time of a layer by its roofline, and the error of activations in 8 bits with an outlier."""
    gpu, width = measure.GPUS["H100 SXM"], 8192

    def seconds(tokens: float, weight_bytes: float, rate: float) -> float:
        """Return what the slower of arithmetic and reading the weights takes."""
        return max(2 * tokens * width**2 / rate, weight_bytes * width**2 / gpu.bytes_per_s)

    bf16, eight = gpu.flop_per_s["bf16"], gpu.int8_per_s
    writing, prompt = (
        [seconds(tokens, size, rate) for size, rate in ((2, bf16), (4.5 / 8, bf16), (1, eight))]
        for tokens in (1, 8192)
    )
    assert writing[0] > writing[2] > writing[1]
    assert prompt[0] == prompt[1] == 2 * prompt[2] or math.isclose(prompt[0], 2 * prompt[2], rel_tol=0.01)
    assert prompt[0] == prompt[1]

    cross, bound4 = (size * bf16 / (2 * gpu.bytes_per_s) for size in (1, 4.5 / 8))

    def faster(tokens: float) -> float:
        """Return how many times as fast FP8 is as INT4 weights in bf16 products."""
        return seconds(tokens, 4.5 / 8, bf16) / seconds(tokens, 1, gpu.flop_per_s["fp8_e4m3"])

    assert faster(0.99 * cross) < 1 < faster(1.01 * cross)
    assert seconds(bound4, 4.5 / 8, bf16) < 1.001 * seconds(1, 4.5 / 8, bf16)
    most = faster(8192)

    x = torch.randn(512, 256)
    x[:, 3] *= 100  # a channel of outliers

    def error(x: Tensor, weight: Tensor) -> float:
        """Return that of a product with one scale of 8 bits per token, and one per output."""
        scales = [each.abs().amax(1, keepdim=True) / 127 for each in (x, weight)]
        a, b = ((each / s).round() * s for each, s in zip((x, weight), scales, strict=True))
        return ((a @ b.T - x @ weight.T).norm() / (x @ weight.T).norm()).item()

    weight = torch.randn(128, 256)
    weight[:, 3] /= 100  # so that the channel matters as much as any other
    move = x.abs().amax(0).sqrt() / weight.abs().amax(0).sqrt()  # a part of the outlier goes into the weights
    plain, smooth = error(x, weight), error(x / move, weight * move)
    assert plain > 4 * smooth
    assert torch.allclose((x / move) @ (weight * move).T, x @ weight.T, rtol=1e-3, atol=1e-3)
    # INT8 and E4M3 with a scale per token, by the error of all other channels
    plain_ones, others = torch.randn(512, 256), torch.arange(256) != 3

    def coarse(x: Tensor) -> list[float]:
        largest = x.abs().amax(1, keepdim=True)
        integers, floats = (
            (x / largest * 127).round() / 127,
            (x / largest * 448).to(torch.float8_e4m3fn).float() / 448,
        )
        back = [(each * largest - x)[:, others].norm().item() for each in (integers, floats)]
        return [each / x[:, others].norm().item() for each in back]

    for loud, finer in ((plain_ones, 0), (x, 1)):
        assert coarse(loud)[finer] < coarse(loud)[1 - finer] / 3
    codes = torch.randint(-127, 128, (2, 8192), dtype=torch.int32)
    codes[:, 0] = 127
    assert (codes[0] * codes[1]).sum(dtype=torch.int32) == (codes[0].double() * codes[1].double()).sum()
    assert 127**2 * 100_000 < 2**31  # so many terms at least are exact
    hadamard = torch.ones(1, 1)
    while len(hadamard) < 256:
        hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
    hadamard = hadamard / 16  # orthogonal: the root of 256
    rotated = error(x @ hadamard, weight @ hadamard)
    assert torch.allclose((x @ hadamard) @ (weight @ hadamard).T, x @ weight.T, rtol=1e-3, atol=1e-3)
    assert plain > 3 * rotated
    # Merged into the weights before it, a rotation does not pass a nonlinearity, nor rotary positions
    hidden, merged = x @ weight.T, x @ (hadamard[:128, :128] * 2**0.5 @ weight).T
    assert torch.allclose(merged, hidden @ hadamard[:128, :128].T * 2**0.5, rtol=1e-2, atol=1e-2)
    assert not torch.allclose(F.silu(merged), F.silu(hidden) @ hadamard[:128, :128].T * 2**0.5, atol=1)
    angles = torch.tensor([[0.6, -0.8], [0.8, 0.6]])  # a position's, of one pair of channels
    assert not torch.allclose(hadamard[:2, :2] @ angles, angles @ hadamard[:2, :2])
    # A logit of its own takes what attention has no use for
    low = torch.full((16,), -4.0)
    taken = torch.cat([low, torch.zeros(1)]).softmax(0)[-1].item()
    assert low.softmax(0).sum() > 0.99 > taken > 0.5
    new = measure.GPUS["B200 SXM"]
    prompt4 = new.flop_per_s["fp4_e2m1"] / new.flop_per_s["bf16"]
    assert prompt4 > prompt[0] / prompt[2]
    return {
        "bound4": f"{bound4:.0f}",
        "cross": f"{cross:.0f}",
        "most": f"{most:.0f}",
        "new": new.name.removesuffix(" SXM"),
        "write4": f"{writing[0] / writing[1]:.1f}",
        "write8": f"{writing[0] / writing[2]:.1f}",
        "prompt8": f"{prompt[0] / prompt[2]:.1f}",
    }


def kv_fp8() -> dict[str, object]:
    """Cast keys and values to E4M3 and to INT4, with a large channel of keys and two kinds of scales."""
    query, key, value = torch.randn(3, 256, 64)
    key[:, 5] += 30  # keys have channels that are large for every token

    def attention(key: Tensor, value: Tensor) -> Tensor:
        return (query @ key.T / 8).softmax(1) @ value

    def cast(x: Tensor, scale: Tensor) -> Tensor:
        return (x / scale).to(torch.float8_e4m3fn).float() * scale

    def int4(x: Tensor, scale: Tensor) -> Tensor:
        return (x / scale).round().clamp(-8, 7) * scale

    wanted, limit = attention(key, value), torch.finfo(torch.float8_e4m3fn).max

    def error(key: Tensor, value: Tensor) -> float:
        return ((attention(key, value) - wanted).norm() / wanted.norm()).item()

    one = cast(key, key.abs().max() / limit), cast(value, value.abs().max() / limit)
    only_values = error(key, one[1])
    both = error(*one)
    assert only_values < 0.03 < both

    def unscaled(x: Tensor) -> Tensor:
        return cast(x.clamp(-limit, limit), torch.ones(()))  # engines cut off what is too large

    assert abs(error(unscaled(key), unscaled(value)) - both) < 0.5 * both  # normal numbers: it hardly matters

    def off(x: Tensor, stored: Tensor) -> float:
        return ((stored - x).norm() / x.norm()).item()

    little, loud = 0.003 * value, key.clone()  # values below the normal numbers, and keys above the largest
    loud[:, 5] *= 1000 / loud.max()
    subnormal, clipped = (
        [off(x, unscaled(x)), off(x, cast(x, x.abs().max() / limit))] for x in (little, loud)
    )
    assert subnormal[0] > 4 * subnormal[1]
    assert clipped[0] > 4 * clipped[1]
    per_token = error(int4(key, key.abs().amax(1, keepdim=True) / 7), value)
    per_channel = error(int4(key, key.abs().amax(0, keepdim=True) / 7), value)
    assert per_token > 1.2 * per_channel  # with integers it does
    # A scale per channel and group of tokens, behind the rotation by places and before it
    keys = torch.randn(2048, 64)
    keys[:, [3, 10, 21, 30, 44, 57]] += 15 * torch.randn(6).sign()
    turns = torch.arange(2048.0)[:, None] * 10_000.0 ** -torch.linspace(0, 1, 32)

    def rotated(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.view(-1, 32, 2).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(turns), turns)).flatten(1)

    def in_four_bits(x: Tensor, tokens: int, channels: int) -> Tensor:
        """Round to 16 even steps between the least and the largest of each block, as by a zero point."""
        blocks = x.view(len(x) // tokens, tokens, 64 // channels, channels)
        least, largest = blocks.amin((1, 3), keepdim=True), blocks.amax((1, 3), keepdim=True)
        step = (largest - least) / 15
        return (((blocks - least) / step).round() * step + least).view_as(x)

    asked = torch.randn(64, 64)
    by_token, behind, before = (
        ((asked @ (each - rotated(keys)).T).norm() / (asked @ rotated(keys).T).norm()).item()
        for each in (
            in_four_bits(rotated(keys), 1, 64),
            in_four_bits(rotated(keys), 128, 1),
            rotated(in_four_bits(keys, 128, 1)),
        )
    )
    assert before < 0.9 * behind < 0.8 * by_token
    return {
        "bytes": 2,
        "normal": f"{torch.finfo(torch.float8_e4m3fn).smallest_normal:.3f}",
        "limit": f"{limit:.0f}",
    }


def qlora_dtypes() -> dict[str, object]:
    """Train adapters over a base in four bits: who has a gradient, who moves, and in which dtype."""
    quantise = shelf.find("group_quantize").solution
    base = torch.randn(64, 64) / 8
    codes, scales = quantise(base, 32)
    unpacked = (codes * scales.float().repeat_interleave(32, 1)).bfloat16()
    down, up = nn.Parameter(torch.randn(8, 64) / 8), nn.Parameter(torch.zeros(64, 8))
    x, target = torch.randn(256, 64), torch.randn(256, 64)

    def loss(down: Tensor, up: Tensor) -> Tensor:
        with torch.autocast("cpu", _BF16):
            output = F.linear(x, unpacked) + F.linear(F.linear(x, down), up)
        return F.mse_loss(output.float(), target)

    assert F.linear(x.bfloat16(), unpacked).dtype == _BF16
    loss(down, up).backward()
    assert up.grad is not None
    assert up.grad.dtype == torch.float32
    assert not codes.is_floating_point()  # what has no gradient in PyTorch
    # Small steps: in fp32 they add up, in bf16 they do not
    ones, small = torch.ones(1000), 1e-4
    moved = [ones.to(dtype) for dtype in (torch.float32, _BF16)]
    for _ in range(100):
        moved = [each - small for each in moved]
    assert math.isclose(moved[0][0].item(), 1 - 100 * small, rel_tol=1e-4)
    assert moved[1][0] == 1
    # A small adapter: merged into a weight of 16 bits, and as a product of its own
    once, effect = (torch.randn(64, 64) / 16).bfloat16(), 1e-4 * torch.randn(64, 8) @ down.detach()
    inside = x.bfloat16()
    alone = inside.double() @ effect.double().T
    merged = inside.double() @ ((once.float() + effect).bfloat16().double() - once.double()).T
    apart = F.linear(inside, effect.bfloat16()).double()
    lost, kept_apart = ((each - alone).norm() / alone.norm() for each in (merged, apart))
    assert lost > 0.3 > 0.01 > kept_apart
    # Merged into the base and rounded again: the effect on the output, against the adapter's own
    learned = 0.01 * torch.randn(64, 8) @ torch.randn(8, 64) / 8
    again, new_scales = quantise(unpacked.float() + learned, 32)
    rerounded = again * new_scales.float().repeat_interleave(32, 1) - unpacked.float()
    requantised = ((x @ (rerounded - learned).T).norm() / (x @ learned.T).norm()).item()
    in_16_bits = (unpacked.float() + learned).bfloat16().float() - unpacked.float()
    step_of_group = new_scales.float().mean()
    assert learned.std() < step_of_group / 3  # small against the steps: nothing of it is left
    assert requantised > 0.9 > 5 * ((x @ (in_16_bits - learned).T).norm() / (x @ learned.T).norm())
    # NF4: codes at quantiles of a normal distribution, or 16 at even steps, in blocks with a scale each
    block = 64
    normal = torch.distributions.Normal(0.0, 1.0)
    ends = (1 / 32 + 1 / 30) / 2  # as its authors leave out of either tail
    halves = [normal.icdf(torch.linspace(1 - ends, 0.5, n)[:-1]) for n in (9, 8)]
    quantiles = torch.cat([halves[0], -halves[1], torch.zeros(1)]).sort().values / normal.icdf(
        torch.tensor(1 - ends)
    )
    assert len(quantiles) == len(torch.linspace(-1, 1, 16)) == 16

    def rounding(codes: Tensor, x: Tensor) -> float:
        amax = x.abs().amax(1, keepdim=True)
        back = codes[(x[..., None] / amax[..., None] - codes).abs().argmin(-1)] * amax
        return ((back - x).norm() / x.norm()).item()

    drawn = torch.randn(500, block)
    nf4, even = rounding(quantiles, drawn), rounding(torch.linspace(-1, 1, 16), drawn)
    assert nf4 < 0.95 * even
    outlier = drawn.clone()
    outlier[:, 0] = 30
    assert rounding(quantiles, outlier) > 0.2 * nf4  # of a norm that the outlier makes
    small_ones = (outlier[:, 1:] / 30).abs() < quantiles[quantiles > 0].min() / 2
    assert small_ones.float().mean() > 0.7  # most become zero
    once_quantised, twice = 32 / block, 8 / block + 32 / (block * 256)
    parameters, rank_share = 65e9, 0.01
    whole, quantised = parameters * 16 / 1e9, parameters * (4.5 / 8 + rank_share * 16) / 1e9
    assert whole > 1000 > 60 > quantised
    return {
        "block": block,
        "nf4": f"{nf4:.1%}",
        "even": f"{even:.1%}",
        "scales": f"{once_quantised:g}",
        "twice": f"{twice:.3f}",
        "whole": f"{whole:,.0f}",
        "quantised": f"{quantised:.0f}",
        "small": small,
        "share": f"{rank_share:.0%}",
        "billions": 65,
    }


def bf16_decay() -> dict[str, object]:
    """Multiply weights by 1 - 1e-5 ten thousand times, and find the smallest decay that moves any."""
    weights, decay = torch.randn(10_000), 1e-5
    steps = 10_000
    assert torch.equal(weights.bfloat16() * (1 - decay), weights.bfloat16())  # and so at every later step
    exact = 1 - (1 - decay) ** steps
    in_fp32 = torch.ones(1)
    for _ in range(steps):
        in_fp32 = in_fp32 * (1 - decay)
    assert math.isclose(1 - in_fp32.item(), exact, rel_tol=0.02)
    numbers = torch.arange(0x3F80, 0x4000, dtype=torch.int16).view(_BF16)  # all from 1 to 2
    smallest = next(k for k in range(1, 100) if not torch.equal(numbers * (1 - k * 1e-4), numbers))
    assert 18 <= smallest <= 21
    decoupled = torch.ones(1, dtype=_BF16) - 1e-5 * torch.ones(1, dtype=_BF16)
    assert decoupled == 1  # written as a subtraction, no better
    # AdamW with gradients that are noise: how much of the start is left, with decay and without

    def left(
        decay: float,
        rate: float = 1e-3,
        size: float = 0.05,
        *,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> float:
        draw = torch.Generator().manual_seed(0)
        start = (size * torch.randn(5000, generator=draw)).bfloat16()
        weight = nn.Parameter(start.clone())
        optimizer = torch.optim.AdamW([weight], rate, weight_decay=decay, foreach=foreach, fused=fused)
        for _ in range(1000):
            weight.grad = torch.randn(5000, generator=draw).bfloat16()
            optimizer.step()
        return (weight.detach().double() @ start.double() / start.double().square().sum()).item()

    apart, fused = left(0.1, foreach=True), left(0.1, fused=True)
    assert abs(apart - left(0.0, foreach=True)) < 0.01 < 0.05 < left(0.0, fused=True) - fused
    assert abs(left(0.1, foreach=False) - apart) < 0.01

    def survives(rate: float, size: float) -> float:
        """Return which part of the decay a fused optimizer keeps, of weights of a size."""
        with_it, without = (left(each, rate, size, fused=True) for each in (0.1, 0.0))
        return (1 - with_it / without) / (1 - (1 - rate * 0.1) ** 1000)

    rate, large, small = 3e-4, 0.05, 0.02
    coarse, fine = survives(rate, large), survives(rate, small)
    assert 0.1 < coarse < 0.3 < 0.6 < fine < 0.9  # at one rate: the weight's spacing decides
    assert abs(survives(2e-5, large)) < 0.01
    up_or_down = torch.rand(10**6) < decay / 2**-8  # a stochastic rounding of 1 - 1e-5, to 1 or 1 - 1/256
    assert math.isclose(up_or_down.float().mean().item() * 2**-8, decay, rel_tol=0.1)
    portion = numbers * (1 - decay) ** 1000  # a thousand steps' decay at once
    assert (portion < numbers).all()
    return {
        "decay": "1e-5",
        "steps": f"{steps:,}",
        "exact": f"{exact:.0%}",
        "least": f"{smallest * 1e-4:.1%}",
    }


# --- optimizers, compilers, other formats


def muon_bf16() -> dict[str, object]:
    """Run Muon's five steps in fp32 and bf16, on a matrix whose singular values spread and on a plain one."""

    def newton_schulz(
        matrix: Tensor, dtype: torch.dtype, *, normalised: bool = True, push: float = 1
    ) -> Tensor:
        x = (matrix / matrix.norm() if normalised else matrix).to(dtype)
        for step in range(5):
            square = x @ x.mT
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
            x = x * push if step == 2 else x
        return x.double()

    plain, fp32 = torch.randn(128, 256), torch.float32
    values = {dtype: torch.linalg.svdvals(newton_schulz(plain, dtype)) for dtype in (fp32, _BF16)}
    low, high = values[fp32].min().item(), values[fp32].max().item()
    assert 0.6 < low < 0.8
    assert 1.05 < high < 1.25
    added = (values[fp32] - values[_BF16]).abs().max().item()
    assert added < 0.1 * (high - low)
    for push in (0.95, 1.05):  # what is off by some per cent after three steps comes back into the band
        pushed = torch.linalg.svdvals(newton_schulz(plain, fp32, push=push))
        assert 0.6 < pushed.min() < pushed.max() < 1.25
    assert torch.linalg.svdvals(newton_schulz(plain, fp32, push=1.1)).max() > 2  # a tenth is too much
    sizes = torch.linspace(1e-3, 1.4, 100_001).double()  # of a singular value, on which a step acts alone
    after = sizes.clone()
    ends = []
    for _ in range(40):
        after = 3.4445 * after - 4.7750 * after**3 + 2.0315 * after**5
        ends.append(after)
    top = ends[4][sizes <= 1].max().item()
    limit = sizes[~(ends[-1].abs() < top + 0.1)].min().item()
    assert high < top < limit < 1.1 * top
    assert len({f"{each:.1f}" for each in after[(sizes > 0.7) & (sizes < 1)].tolist()}) > 3  # not towards 1
    assert not newton_schulz(plain, fp32, normalised=False).isfinite().all()
    left, _, right = torch.linalg.svd(plain, full_matrices=False)
    spread = (left * torch.logspace(0, -3, 128)) @ right
    in_fp32, in_bf16 = (newton_schulz(spread, dtype) for dtype in (fp32, _BF16))
    off = ((in_fp32 - in_bf16).norm() / in_fp32.norm()).item()
    smallest = torch.linalg.svdvals(in_fp32).min().item()
    assert smallest < 0.5  # so few steps do not lift a direction that was a thousandth
    assert 0.02 < off < 0.3
    difference = in_fp32 - in_bf16
    weak = left[:, 64:].double()  # the half with the smaller singular values
    assert (weak.mT @ difference).norm() > 0.8 * difference.norm()
    return {
        "low": f"{low:.1f}",
        "high": f"{high:.1f}",
        "added": f"{added:.3f}",
        "limit": f"{limit:.2f}",
    }


def eight_bit_moments() -> dict[str, object]:
    """Store second moments of many sizes in 8 bits: by even steps, and by codes with an exponent."""
    gradients = torch.randn(64, 256) * torch.logspace(-4, 0, 256)
    second, first = gradients.square(), gradients
    amax = second.amax(1, keepdim=True)
    even = (second / amax * 255).round() / 255 * amax
    e5m2 = FORMATS["fp8_e5m2"]
    floating = (second / amax * e5m2.max).to(torch.float8_e5m2).float() / e5m2.max * amax

    def lost(stored: Tensor) -> float:
        return (stored == 0).float().mean().item()

    def longest(stored: Tensor) -> float:
        """Return the largest step of Adam, first over root of second moment, in learning rates."""
        return (first.abs() / (stored.sqrt() + 1e-8)).max().item()

    assert math.isclose(longest(second), 1, rel_tol=1e-3)
    assert longest(even) > 1e6
    assert lost(even) > 0.5 > lost(floating)
    kept = floating > 0
    assert (first.abs() / floating.sqrt())[kept].max() < 1.6
    whole = second.clone()
    whole[0, 0] = 1e4  # one huge gradient: in one block, or in a scale for all
    shared = (whole / whole.max() * 255).round()
    per_block = (whole / whole.amax(1, keepdim=True) * 255).round()
    assert (shared[1:] == 0).all()
    assert not (per_block[1:] == 0).all()
    left, before = 2 * (1 + 4 / 256), 2 * 4  # a scale in fp32 for each block of 256
    return {
        "bytes": before,
        "left": f"{left:.0f}",
    }


def compile_casts() -> dict[str, object]:
    """Round after each of a chain of operations, as eager mode does, and once, as a fused kernel does."""
    x, y, z = torch.randn(3, 100_000).bfloat16()

    def chain(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return x * torch.sigmoid(y) + z

    eager = chain(x, y, z)
    fused = chain(x.float(), y.float(), z.float()).bfloat16()
    exact = chain(x.double(), y.double(), z.double())
    differ = (eager != fused).float().mean().item()
    assert 0.05 < differ < 0.9
    off = [((each.double() - exact).norm() / exact.norm()).item() for each in (eager, fused)]
    assert off[0] > 1.2 * off[1]
    relative = ((eager.double() - fused.double()) / fused.double().abs().clamp(min=1e-6)).abs().max().item()
    assert relative > 0.5  # where terms cancel, a last bit is everything
    assert (x.float().sum() != x.float().flip(0).sum()) or (y.float().sum() != y.float().flip(0).sum())
    # A cast that somebody wrote is a statement about the result, and leaving it out another function
    written = (x.float() / 3).bfloat16().float() + 1.0
    assert not torch.equal(written, x.float() / 3 + 1.0)
    return {}


def fp16_served() -> dict[str, object]:
    """Let a residual stream outgrow fp16, see what the norm makes of it, and divide what is added."""
    outputs = torch.randn(32, 4, 256) * 5e3  # of 32 blocks
    stream = outputs.cumsum(0)
    assert stream[-1].norm() > 4 * stream[0].norm()  # it grows with depth
    hidden, limit = stream[-1], torch.finfo(torch.float16).max
    assert outputs.half().isfinite().all()
    assert hidden.bfloat16().isfinite().all()
    assert hidden.half().isinf().any()

    def norm(x: Tensor) -> Tensor:
        """Normalise in fp32, as models do."""
        return F.rms_norm(x.float(), (256,))

    def off(x: Tensor) -> float:
        return ((norm(x) - norm(hidden)).norm() / norm(hidden).norm()).item()

    assert norm(hidden.half()).isnan().any()  # inf over inf
    clamped = hidden.half().clamp(-limit, limit)
    assert norm(clamped).isfinite().all()

    # A model whose blocks read the stream through a norm: all that is added divided by 64
    weights = torch.randn(3, 256, 256)

    def model(x: Tensor, divisor: float) -> Tensor:
        x = x / divisor
        for weight in weights:
            x = x + F.linear(norm(x), weight) / divisor
        return norm(x)

    assert torch.allclose(model(hidden, 64), model(hidden, 1), rtol=1e-3, atol=1e-4)
    little, eps = 0.02 * torch.randn(32, 256), 1e-5  # a stream beside which epsilon counts once it is divided
    whole, kept, squared = (
        F.rms_norm(little / divisor, (256,), eps=epsilon)
        for divisor, epsilon in ((1, eps), (64, eps), (64, eps / 64**2))
    )
    assert (kept - whole).norm() > 0.8 * whole.norm()
    assert torch.allclose(squared, whole)
    divided = (hidden / 64).half()
    assert off(divided) < 0.3 * off(hidden.bfloat16())
    assert off(clamped) > 10 * off(divided)
    return {
        "limit": f"{limit:g}",
    }
