"""What the card of the softmax by blocks says, and what its check sees of memory."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from amp_lessons import exercises
from amp_lessons.course.exercises.online_softmax.check import cases
from amp_lessons.course.exercises.online_softmax.hand_out_there import HandOut

CASES = {case.what: case for case in cases(torch.Generator().manual_seed(1))}
MANY = CASES["many like blocks of scores in bf16"]


def solution(blocks):
    return exercises.solution("online_softmax").function(blocks)


def with_rounded_weights(blocks):
    """The solution's loop, with exponentials that are rounded to bf16 for the product alone."""
    largest, total, weighted = torch.tensor(torch.finfo(torch.float32).min), 0.0, 0.0
    for scores, values in blocks:
        before, largest = largest, torch.maximum(largest, scores.float().amax(-1, keepdim=True))
        rescale, weights = (before - largest).exp(), (scores.float() - largest).exp()
        total = total * rescale + weights.sum(-1, keepdim=True)
        weighted = weighted * rescale + weights.bfloat16().float() @ values.float()
    return weighted / total.clamp(min=1.0)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_reference_is_pytorchs_own_attention(case):
    """In fp64, which it computes without blocks; a row without a key gives zeros there as well."""
    rows = case.scores.reshape(-1, case.scores.shape[-1]).double()
    # A query and a key of one number each: all of the scores come from the mask
    query, key = torch.zeros(1, len(rows), 1), torch.zeros(1, rows.shape[-1], 1)
    theirs = scaled_dot_product_attention(
        query.double(), key.double(), case.values.double()[None], rows[None]
    )
    assert torch.allclose(theirs[0].reshape(case.result().shape), case.result(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_weight_rounded_for_the_product_costs_a_256th_at_most_and_more_than_is_allowed(case):
    off = float(case.errors(with_rounded_weights(case.blocks()), case.result()).max())
    assert off < 2**-8
    if case.name != MANY.name:  # whose four thousand roundings cancel
        assert case.tolerance < off
    assert float(case.errors(solution(case.blocks()), case.result()).max()) < case.tolerance / 50


def test_in_bf16_the_sum_would_stop_growing():
    counted = torch.zeros((), dtype=torch.bfloat16)
    for _ in range(1000):
        counted = counted + 1
    assert counted == 256


def test_a_logarithm_of_the_sum_costs_digits_beside_a_score_of_a_thousand():
    lse = torch.tensor(1000.0)
    assert float(torch.nextafter(lse, torch.tensor(2000.0)) - lse) == pytest.approx(0.00006, rel=0.02)


def test_a_row_that_saw_a_key_has_a_sum_of_at_least_one():
    for case in CASES.values():
        shifted = case.scores.float() - case.scores.float().amax(-1, keepdim=True)
        assert (shifted.exp().sum(-1)[case.weights().sum(-1) > 0] >= 1).all()


def held_by(attempt):
    blocks = HandOut(list(MANY.blocks()))
    with blocks:
        attempt(blocks)
    return blocks.most_held / (MANY.scores.nbytes + MANY.values.nbytes)


def test_memory_is_counted_as_it_is_held():
    assert held_by(lambda blocks: [None for _ in blocks]) < 0.04, "no more than the block before"
    assert held_by(list) == 1
    assert held_by(lambda blocks: [scores.float() for scores, _ in blocks]) == pytest.approx(1, abs=0.04)
    assert held_by(lambda blocks: [values for _, values in blocks]) == pytest.approx(0.5, abs=0.04)
    assert held_by(solution) < 0.2


def test_a_view_holds_all_that_it_is_a_view_of():
    assert held_by(lambda blocks: [scores[:, :1] for scores, _ in blocks]) == pytest.approx(0.5, abs=0.04)
