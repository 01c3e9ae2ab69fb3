"""What the cards of lesson 11's deeper exercises say, and their solutions held against other ways."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from amp_lessons import exercises
from amp_lessons.course.exercises.group_quantize.check import cases

group_quantize = exercises.solution("group_quantize").function
importance_weights = exercises.solution("importance_weights").function
CASES = {case.what: case for case in cases(torch.Generator().manual_seed(0))}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_codes_are_those_of_a_loop_over_numbers(case):
    codes, scales = group_quantize(case.weight, case.group_size)
    weight, size = case.weight.double().numpy(), case.group_size
    for i, j in np.ndindex(*weight.shape):
        group = weight[i, j // size * size : (j // size + 1) * size]
        scale = float(scales[i, j // size])
        assert scale == pytest.approx(max(np.abs(group).max() / 7, 1e-30), rel=2**-8)
        assert abs(codes[i, j].item() - weight[i, j] / scale) <= 0.5 + 1e-5


def test_an_outlier_takes_the_digits_of_its_row_or_of_31_others():
    weight = torch.randn(1, 4096, generator=torch.Generator().manual_seed(0))
    weight[0, 7] = 40.0
    lost = {size: float((group_quantize(weight, size)[0] == 0).float().mean()) for size in (32, 4096)}
    assert lost[4096] > 0.99
    assert lost[32] < 0.2


def test_amax_over_7_moves_by_0_4_per_cent_in_bf16_and_lands_above_6_9():
    amax = torch.linspace(0.1, 10, 50_001)
    rounded = (amax / 7).bfloat16().float()
    off = ((rounded - amax / 7) / (amax / 7)).abs().max()
    assert 0.0035 < off < 2**-8
    assert (amax / rounded).min() > 6.9
    assert (amax / rounded).max() < 7.5, "so nothing is cut off"


LOGITS = torch.tensor([1.0, 0.3, -0.5, -2.0, -6.0], dtype=torch.float64)
ENGINE = (LOGITS + torch.tensor([0.1, -0.2, 0.3, -0.4, -3.0], dtype=torch.float64)).log_softmax(-1)
REWARDS = torch.tensor([0.0, 1.0, 0.5, 2.0, 30.0], dtype=torch.float64)


def mean_gradient(cap=None, through_weights=False):
    """Return the policy gradient's mean over the engine's draws, each weighed; unweighed for ``cap`` 0."""
    logits = LOGITS.clone().requires_grad_()
    trainer = logits.log_softmax(-1)
    if through_weights:
        weights = (trainer - ENGINE).exp()
    elif cap == 0:
        weights = torch.ones_like(trainer)
    else:
        weights = importance_weights(trainer, ENGINE, cap or math.inf).double()
    surrogate = (ENGINE.exp() * weights * REWARDS * trainer).sum()
    return torch.autograd.grad(surrogate, logits)[0]


def true_gradient():
    logits = LOGITS.clone().requires_grad_()
    return torch.autograd.grad((logits.softmax(-1) * REWARDS).sum(), logits)[0]


def test_weights_make_the_mean_over_the_engines_draws_the_trainers():
    assert torch.allclose(mean_gradient(), true_gradient(), atol=1e-6)
    assert not torch.allclose(mean_gradient(cap=0), true_gradient(), atol=0.01), "without weights"
    assert not torch.allclose(mean_gradient(through_weights=True), true_gradient(), atol=0.01)


def test_a_cap_makes_the_mean_a_little_wrong_and_the_largest_share_smaller():
    capped = (mean_gradient(cap=2.0) - true_gradient()).norm()
    assert 0 < capped < (mean_gradient(cap=0) - true_gradient()).norm()
    ratios = (LOGITS.log_softmax(-1) - ENGINE).exp()
    assert ratios.max() > 10 * importance_weights(LOGITS.log_softmax(-1), ENGINE, 2.0).max() / 2


def test_probabilities_of_150_nats_are_zero_in_fp32_and_their_ratio_is_not_a_number():
    engine = torch.tensor([-150.0])
    assert engine.exp() == 0
    assert ((engine + 0.5).exp() / engine.exp()).isnan()
    assert importance_weights(engine + 0.5, engine, 2.0).item() == pytest.approx(math.exp(0.5), rel=1e-6)
    assert torch.full((1,), torch.nan).clamp(max=2.0).isnan()
    assert (torch.full((1,), torch.nan) * 0).isnan()
