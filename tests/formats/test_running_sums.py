"""Sums with every step rounded, against PyTorch's own half-precision additions."""

import math

import pytest
import torch

from amp_lessons.formats import FORMATS, SUM_METHODS, repeated_update, running_sum

BF16, FP16 = FORMATS["bf16"], FORMATS["fp16"]
THOUSAND_STEPS = torch.full((1000,), 1e-3)


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_plain_sums_are_those_of_a_half_precision_tensor(name, dtype):
    increments = torch.randn(200, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    total, expected = torch.ones(3, dtype=dtype), []
    for increment in increments:
        total = total + increment
        expected.append(total.float())
    assert torch.equal(running_sum(increments, FORMATS[name], start=1.0), torch.stack(expected))


@pytest.mark.parametrize(("name", "stuck_at"), [("bf16", 256), ("fp16", 2048), ("fp8_e5m2", 8)])
def test_counting_sticks_where_the_spacing_reaches_two(name, stuck_at):
    sums = running_sum(torch.ones(stuck_at + 50), FORMATS[name])
    assert sums[:stuck_at].tolist() == list(range(1, stuck_at + 1))
    assert sums[stuck_at:].unique().tolist() == [stuck_at]


def test_a_small_update_to_a_bf16_weight_vanishes_unless_something_remembers_it():
    last = {
        method: running_sum(
            THOUSAND_STEPS, BF16, method, start=1.0, generator=torch.Generator().manual_seed(0)
        )[-1].item()
        for method in SUM_METHODS
    }
    assert last["plain"] == 1.0
    assert last["fp32_copy"] == last["kahan"] == 2.0
    assert 1.8 < last["stochastic"] < 2.2


def test_stochastic_rounding_is_right_on_average():
    many_weights = THOUSAND_STEPS.unsqueeze(1).expand(-1, 400)
    last = running_sum(
        many_weights, BF16, "stochastic", generator=torch.Generator().manual_seed(0), start=1.0
    )[-1]
    # Each step moves by the spacing 2^-7 with probability 1e-3 · 2^7
    deviation = math.sqrt(1000 * 1e-3 * 2**7) * 2.0**-7
    assert abs(last.mean() - 2) < 4 * deviation / math.sqrt(400)


@pytest.mark.parametrize("method", SUM_METHODS)
def test_every_sum_is_a_value_of_the_format(method):
    increments = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    sums = running_sum(increments, FP16, method, start=torch.tensor([1.0, 2.0, 0.3, -4.0]))
    assert sums.shape == (50, 4)
    assert torch.equal(sums.half().float(), sums)


def test_the_generator_makes_it_repeatable():
    first, again = (
        running_sum(THOUSAND_STEPS, BF16, "stochastic", generator=torch.Generator().manual_seed(3))
        for _ in range(2)
    )
    assert torch.equal(first, again)


def test_the_fp32_copy_starts_unrounded():
    assert running_sum(torch.zeros(1), BF16, "fp32_copy", start=257.0).item() == 256
    assert running_sum(torch.ones(1), BF16, "fp32_copy", start=258.9).item() == 260
    assert running_sum(torch.ones(1), BF16, "plain", start=257.0).item() == 256


def test_bad_input_is_answered_in_words():
    with pytest.raises(
        ValueError, match="no method 'neumaier'; there are plain, fp32_copy, kahan, stochastic"
    ):
        running_sum(THOUSAND_STEPS, BF16, "neumaier")
    for nothing in (torch.tensor(1.0), torch.empty(0)):
        with pytest.raises(ValueError, match="increments has at least one"):
            running_sum(nothing, BF16)


def test_a_repeated_update_is_a_running_sum_in_every_way_of_keeping_it():
    weights = repeated_update(2.0**-10, BF16, 300)
    assert list(weights) == list(SUM_METHODS)
    assert weights["plain"] == [1.0] * 300, "half the spacing at 1 is 2^-8"
    exact = torch.arange(1, 301, dtype=torch.float64) / 1024 + 1
    assert weights["fp32_copy"] == exact.float().bfloat16().tolist()
    assert all(abs(weights[method][-1] - float(exact[-1])) < 0.1 for method in ("kahan", "stochastic"))
