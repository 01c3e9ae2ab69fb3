"""What the questions of lesson 11 say, and why, where no cell of the lesson computes it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import cross_entropy, linear, rms_norm
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons import fp8
from amp_lessons.course.material import decoder
from tests.stored_lessons import text

BF16 = torch.bfloat16
WEIGHTS = 70e9
BYTES_PER_S = 3.35e12


def spacing(number, dtype=BF16):
    """Return how far the next larger number of a dtype lies from ``number``."""
    x = torch.tensor(number, dtype=dtype)
    return float(torch.nextafter(x, torch.tensor(torch.inf, dtype=dtype)) - x)


def test_a_seed_is_nothing_to_temperature_0_and_the_order_of_a_sum_is():
    sums = []
    for parts in ([256.0, 1.0, 1.0], [1.0, 1.0, 256.0]):
        total = torch.zeros((), dtype=BF16)
        for part in parts:
            total = total + part
        sums.append(total)
    assert [float(total) for total in sums] == [256.0, 258.0]
    rival = torch.tensor(257.0)  # another token's logit
    chosen = [int(torch.stack([rival, total.float()]).argmax()) for total in sums]
    assert chosen == [0, 1], "the other token is taken"


def test_rounding_to_the_nearest_gives_the_same_bits_each_time():
    draw = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=draw).bfloat16() for _ in range(2))
    assert all(torch.equal(a @ b, a @ b) for _ in range(20))


def test_a_rounded_logit_moves_by_half_a_spacing_and_a_probability_by_six_or_thirteen_per_cent():
    assert spacing(16.0) == spacing(20.0) == spacing(31.0) == 0.125
    numbers = torch.linspace(16, 31.9, 10_001)
    off = float((numbers.bfloat16().float() - numbers).abs().max())
    assert off == pytest.approx(0.0625, rel=0.01)
    assert math.exp(off) == pytest.approx(1.064, abs=0.001)
    assert off / 16 <= 2**-8 < 0.004, "of the logit it is the share that bf16 rounds"
    pairs = 16 + 15.9 * torch.rand(100_000, 2, generator=torch.Generator().manual_seed(0))
    exact, rounded = (each.double().softmax(-1)[:, 0] for each in (pairs, pairs.bfloat16()))
    assert math.exp(0.125) == pytest.approx(1.133, abs=0.001)
    assert 1.125 < float((rounded / exact).max()) < math.exp(0.125)


def test_a_head_in_bf16_moves_half_of_the_logits_by_more_than_half_a_spacing_and_none_by_two_of_the_largest():
    """Its operands are rounded too, so that a small logit moves by many of its own spacings."""
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(100, (4, 64), generator=draw)
    model = decoder.decoder(100)
    with torch.no_grad():
        model.head.weight.mul_(20)  # logits as large as those of models that are sure
        exact = model(tokens)
        moved = (model(tokens, decoder.Arithmetic({"head": BF16})) - exact).abs()
    own = 2 ** (exact.abs().log2().floor() - 7)
    assert 0.4 < float((moved > own / 2).float().mean()) < 0.6
    assert float((moved / own).max()) > 100
    assert 0.5 < float((moved / own.amax(-1, keepdim=True)).max()) < 2


def test_a_sum_of_exponentials_in_bf16_stops_at_256_and_the_result_is_16_times_too_large():
    keys, total, weighted = 4096, torch.zeros((), dtype=BF16), torch.zeros(())
    for _ in range(keys):
        total, weighted = total + 1.0, weighted + 0.5
    assert float(total) == 256
    assert float(weighted / total) == 16 * 0.5


def log_probabilities(dtype, parts):
    """Return those of tokens by a network of random layers, each product added up in so many parts."""
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(512, 256, generator=draw)
    for width in (256, 256, 256, 64):
        weight = torch.randn(width, hidden.shape[1], generator=draw) * hidden.shape[1] ** -0.5
        pieces = zip(hidden.to(dtype).chunk(parts, 1), weight.to(dtype).chunk(parts, 1), strict=True)
        total = torch.zeros((), dtype=dtype)
        for piece in pieces:
            total = total + linear(*(each.float() for each in piece)).to(dtype)
        hidden = total.float() if width == 64 else total.tanh().float() * 1.5
    return hidden.log_softmax(-1)[:, 0]


def test_two_kernels_differ_by_a_per_cent_a_token_in_bf16_and_by_an_eighth_of_that_in_fp16():
    dtypes = (BF16, torch.float16)
    differences = {dtype: log_probabilities(dtype, 1) - log_probabilities(dtype, 4) for dtype in dtypes}
    in_bf16, in_fp16 = (float(each.square().mean().sqrt()) for each in differences.values())
    assert 0.003 < in_bf16 < 0.03
    assert in_bf16 / in_fp16 == pytest.approx(8, rel=0.15)
    texts = differences[BF16].view(-1, 64).sum(1)
    assert float(texts.square().mean().sqrt()) > 4 * in_bf16, "logarithms are added up, not averaged"


def gradients_of_texts(length, shift=0.5, seed=1):
    """Return the policy gradient over all texts of two kinds of tokens: exact, and weighed in other ways."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(length, 2, 2, generator=draw, dtype=torch.float64, requires_grad=True)
    moved = logits.detach() + shift * torch.randn(length, 2, 2, generator=draw, dtype=torch.float64)
    texts = torch.cartesian_prod(*[torch.tensor([0, 1])] * length).view(-1, length)
    before = torch.nn.functional.pad(texts, (1, 0))[:, :-1]
    trainer, engine = (each.log_softmax(-1)[torch.arange(length), before, texts] for each in (logits, moved))
    reward = texts.double().mean(1) + texts[:, 0] * texts[:, -1]
    drawn, ratios = engine.sum(1).exp(), (trainer - engine).detach().exp()
    product = ratios.prod(1, keepdim=True)
    weights = {
        "none": torch.ones_like(ratios),
        "token": ratios,
        "text": product,
        "cut": product.clamp(max=1.5),
    }

    def gradient(mean):
        return torch.autograd.grad(mean, logits, retain_graph=True)[0]

    exact = gradient((trainer.sum(1).exp() * reward).sum())
    off = {}
    for name, each in weights.items():
        found = gradient((drawn * reward * (each * trainer).sum(1)).sum())
        off[name] = float((found - exact).norm() / exact.norm())
    return off


def test_ratios_of_tokens_are_exact_for_one_token_and_for_a_text_only_nearer():
    assert gradients_of_texts(1)["token"] < 1e-12
    off = gradients_of_texts(8)
    assert off["text"] < 1e-12
    assert 0.05 < off["token"] < off["none"]
    assert off["cut"] > 0.05, "it is not right on average"


def test_of_the_products_of_long_texts_a_few_weigh_most_and_the_median_falls_with_length():
    draw, medians, heaviest = torch.Generator().manual_seed(0), [], []
    for tokens in (256, 2048, 8192):  # 3 % a token, and a mean of -KL
        spread = 0.03 * torch.randn(20_000, generator=draw).double() * tokens**0.5
        product = (spread - tokens * 0.03**2 / 2).exp()
        medians.append(float(product.median()))
        heaviest.append(float(product.topk(2000).values.sum() / product.sum()))  # a tenth of the texts
    assert medians == pytest.approx([0.88, 0.40, 0.02], abs=0.03)
    assert heaviest[0] < 0.3 < 0.5 < heaviest[1] < heaviest[2]
    assert "a few texts weigh most, the others far below 1" in text("11", "correction")


def test_where_the_engine_drew_a_text_its_log_ratios_have_a_mean_below_zero():
    logits = torch.randn(200, 50, generator=torch.Generator().manual_seed(0)).double()
    trainer, engine = (each.log_softmax(-1) for each in (logits, logits.bfloat16().double()))
    drawn, likely = ((each.exp() * (trainer - engine)).sum(-1).mean() for each in (engine, trainer))
    assert drawn < 0 < likely
    assert "In what the engine drew, log ratios average below zero" in text("11", "ratio-why")


def test_the_lesson_s_fp8_cache_has_a_scale_for_each_token_and_head_and_a_scale_of_one_loses_small_keys():
    keys = 0.002 * torch.randn(2, 4, 16, 8, generator=torch.Generator().manual_seed(0))
    assert "fp8.Cast(block=fp8.ROW)" in text("11", "kv-run")
    scaled = fp8.quantize(keys, fp8.Cast(block=fp8.ROW))
    assert scaled.scales.numel() == 2 * 4 * 16
    with_one = keys.to(torch.float8_e4m3fn).float()
    off = [float((each - keys).norm() / keys.norm()) for each in (scaled.dequantize(), with_one)]
    assert off[0] < 0.04 < 0.2 < off[1]


def test_a_cast_behind_the_head_saves_what_the_softmax_rounds_and_not_what_the_head_did():
    draw = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(64, 256, generator=draw), torch.randn(1000, 256, generator=draw) * 0.3
    labels = torch.arange(64)
    exact = linear(hidden.bfloat16().double(), weight.bfloat16().double()).log_softmax(-1)
    rounded_head = linear(hidden.bfloat16(), weight.bfloat16())
    head_in_fp32 = linear(hidden.bfloat16().float(), weight.bfloat16().float())

    def error(log_probability):
        return float((log_probability.double() - exact)[torch.arange(64), labels].abs().mean())

    softmax_too = error(rounded_head.log_softmax(-1))
    cast_behind = error(rounded_head.float().log_softmax(-1))
    assert rounded_head.softmax(-1).dtype == rounded_head.log_softmax(-1).dtype == BF16
    assert softmax_too > 1.5 * cast_behind
    assert cast_behind > 1000 * error(head_in_fp32.log_softmax(-1))


def test_cross_entropy_is_blind_to_a_constant_that_z_loss_and_bf16_are_not():
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(32, 50, generator=draw), torch.arange(32)
    moved = logits.double() + 100
    assert float(cross_entropy(moved, labels)) == pytest.approx(float(cross_entropy(logits.double(), labels)))
    assert (moved.logsumexp(-1) - logits.double().logsumexp(-1)).tolist() == pytest.approx([100.0] * 32)
    assert spacing(100.0) == 0.5
    exact = cross_entropy(logits, labels)
    near, far = (cross_entropy(each.bfloat16().float(), labels) - exact for each in (logits, moved))
    assert far.abs() > 10 * near.abs()


def test_twice_the_weights_are_four_times_the_scores_and_with_qk_norm_the_same():
    draw = torch.Generator().manual_seed(0)
    x, query, key = (torch.randn(*shape, generator=draw) for shape in ((9, 32), (16, 32), (16, 32)))

    def scores(factor, normalise):
        q, k = (linear(x, weight * factor) for weight in (query, key))
        q, k = ((rms_norm(each, (16,)) if normalise else each) for each in (q, k))
        return q @ k.mT

    assert torch.allclose(scores(2, False), 4 * scores(1, False))
    assert torch.allclose(scores(2, True), scores(1, True), rtol=1e-4, atol=1e-5)
    assert scores(100, True).abs().max() <= 16 + 1e-3, "the length of a row of 16 is 4, twice"
    assert not torch.equal(x, x - x.mean(-1, keepdim=True)), "no mean is taken away"


def rounding_errors(rest):
    """Return the errors of sums of two negative bf16 numbers in [-4, -2), and a ``rest`` times up to 1."""
    draw = torch.Generator().manual_seed(0)
    values = -(2 + 2 * torch.rand(20_000, 2, generator=draw)).bfloat16().double()
    sums = values.sum(1) - rest * torch.rand(20_000, generator=draw).double()
    return (sums.float().bfloat16().double() - sums) / sums.abs()


def test_two_weights_of_exactly_one_make_rounding_errors_that_do_not_average_out():
    errors = rounding_errors(rest=0.01)
    assert errors.mean() < -0.3 * errors.abs().mean()
    fair = rounding_errors(rest=0.0)
    assert fair.mean().abs() < 0.02 * fair.abs().mean(), "middles alone go to the even neighbour"


def test_int4_in_groups_of_32_takes_half_a_bit_more_and_keeps_an_outlier_to_its_group():
    assert 4 + 16 / 32 == 4.5
    draw = torch.Generator().manual_seed(0)
    row = torch.randn(1024, generator=draw)
    row[5] = 30.0

    def error(groups):
        scale = groups.abs().amax(-1, keepdim=True) / 7
        return ((groups / scale).round() * scale - groups).flatten()

    whole, by_group = error(row[None]), error(row.view(-1, 32))
    assert (whole[32:] == -row[32:]).float().mean() > 0.9, "beside the outlier nearly all become 0"
    assert by_group[32:].norm() < 0.2 * whole[32:].norm()
    assert by_group[:32].norm() == pytest.approx(float(whole[:32].norm()))


def test_tokens_per_second_are_bandwidth_over_bytes_and_arithmetic_would_allow_300_times_as_many():
    by_reading = BYTES_PER_S / (2 * WEIGHTS)
    assert by_reading == pytest.approx(24, rel=0.01)
    assert pytest.approx(39, rel=0.01) == WEIGHTS * 4.5 / 8 / 1e9
    assert pytest.approx(85, rel=0.01) == BYTES_PER_S / (WEIGHTS * 4.5 / 8)
    by_arithmetic = 989e12 / (2 * WEIGHTS)
    assert by_arithmetic == pytest.approx(7000, rel=0.01)
    assert by_arithmetic / by_reading == pytest.approx(300, rel=0.02)


def test_a_cache_outgrows_the_weights_with_users_and_tokens_and_is_nothing_to_a_short_question():
    # Llama 3 70B: 80 layers, 8 heads for keys and values, 128 wide; see its config.json
    per_token = 2 * 80 * 8 * 128 * 2
    assert 1e7 < 100 * per_token < 1e8, "tens of megabytes"
    assert 100 * per_token < 0.001 * 2 * WEIGHTS
    assert 64 * 32_768 * per_token > 4 * 2 * WEIGHTS


def newton_schulz(matrix, dtype):
    """Muon's iteration, as in its reference (https://kellerjordan.github.io/posts/muon/)."""
    x = (matrix / matrix.norm()).to(dtype)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return torch.linalg.svdvals(x.double())


def test_what_bf16_adds_to_muons_iteration_is_small_beside_what_the_iteration_leaves():
    matrix = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    in_fp32, in_bf16 = newton_schulz(matrix, torch.float32), newton_schulz(matrix, BF16)
    for values in (in_fp32, in_bf16):
        assert 0.6 < values.min() < 0.75
        assert 1.05 < values.max() < 1.2
    assert (in_fp32 - in_bf16).abs().max() < 0.1 * (in_fp32.max() - in_fp32.min())


def test_muon_leaves_singular_values_between_0_7_and_1_2_unless_they_were_tiny():
    drawn = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    left, _, right = torch.linalg.svd(drawn, full_matrices=False)
    for decades, least in ((1, 0.65), (2, 0.65), (4, 0.0)):
        for dtype in (torch.float32, BF16):
            values = newton_schulz((left * torch.logspace(0, -decades, 64)) @ right, dtype)
            assert least < values.min() < (0.3 if decades == 4 else 0.75)
            assert 1.1 < values.max() < 1.25


def test_decay_of_1e_5_moves_no_weight_in_bf16_and_a_tenth_in_fp32():
    weights = torch.randn(10_000, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(weights * (1 - 1e-5), weights)
    assert pytest.approx(0.905, abs=0.001) == (1 - 1e-5) ** 10_000
    every = torch.arange(0x0080, 0x7F80, dtype=torch.int16).view(BF16).double()  # all normal numbers
    gaps = torch.tensor([(b - a) / b for a, b in pairwise(every.tolist())])
    assert float(gaps.min()) / 2 == pytest.approx(0.002, rel=0.03), "half a spacing, of a weight"


def test_another_order_of_sums_changes_few_logits_of_one_product_and_many_behind_24_layers():
    draw = torch.Generator().manual_seed(0)
    width = 512
    stack = (torch.randn(24, width, width, generator=draw) * width**-0.5).bfloat16().float()
    start = torch.randn(64, width, generator=draw).bfloat16()
    head = torch.randn(500, width, generator=draw).bfloat16().float()

    def product(x, weight, parts):
        """Add up in fp32, every so many together, and round once: no part is rounded."""
        pieces = [linear(x.float()[:, i::parts], weight[:, i::parts]) for i in range(parts)]
        return torch.stack(pieces).sum(0).bfloat16()

    def logits(depth, parts):
        x = start
        for weight in stack[:depth]:
            x = x + product(rms_norm(x, (width,)), weight, parts)
        return product(x, head, parts)

    changed = [float((logits(depth, 1) != logits(depth, 8)).float().mean()) for depth in (0, 24)]
    assert changed[1] > max(0.02, 20 * changed[0])


class Roundings(TorchDispatchMode):
    """Counts the operations whose result is bf16."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.count += result.dtype == BF16
        return result


def test_norms_written_out_in_bf16_round_six_times_and_pytorchs_own_once():
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = rms_norm(x.double(), (64,), eps=decoder.EPS)
    once = rms_norm(x, (64,), eps=decoder.EPS)
    by_hand = decoder.RMSNorm(64)(x.float(), decoder.only("norms", BF16))
    assert torch.equal(once, rms_norm(x.float(), (64,), eps=decoder.EPS).bfloat16())
    off = [float((each.double() - exact).norm() / exact.norm()) for each in (once, by_hand)]
    assert off[1] > 1.3 * off[0]
    norm = decoder.RMSNorm(64).bfloat16()
    with Roundings() as roundings:  # input and weight are in bf16 already
        norm(x, decoder.all_in(BF16))
    assert roundings.count == 6
    assert "with six roundings" in text("11", "parts-why")
