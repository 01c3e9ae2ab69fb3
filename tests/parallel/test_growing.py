"""Errors over more and more ranks, and the way of one element, against single reductions and loops."""

import math

import pytest
import torch

from amp_lessons import parallel


def test_each_number_of_ranks_is_a_reduction_of_the_first_so_many():
    gradients = parallel.rank_gradients(16, 40)
    grown = parallel.growth(gradients, torch.bfloat16)
    assert grown.ranks == (2, 4, 8, 16)
    assert grown.hops == (1, 3, 7, 15)
    for n, error, size in zip(grown.ranks, grown.errors, grown.sizes, strict=True):
        mean = parallel.reduce(gradients[:n], torch.bfloat16).double()
        exact = gradients[:n].double().mean(0)
        assert error == pytest.approx(((mean - exact).norm() / exact.norm()).item())
        assert size == pytest.approx((mean @ exact / (exact @ exact)).item())


def test_a_sum_that_overflows_says_so():
    grown = parallel.growth(torch.full((4, 3), 40000.0), torch.float16)
    assert not any(map(math.isfinite, grown.errors))


def test_made_up_gradients_share_one_and_differ_by_noise():
    gradients = parallel.rank_gradients(512, 64, noise=0.5)
    assert gradients.shape == (512, 64)
    assert (gradients - gradients.mean(0)).std() == pytest.approx(0.5, rel=0.05)
    assert gradients.mean(0).std() == pytest.approx(1, rel=0.3)
    assert torch.equal(gradients, parallel.rank_gradients(512, 64, noise=0.5))


@pytest.mark.parametrize("algorithm", ["ring", "tree", "gloo"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13, 24])
def test_additions_join_what_was_there_until_all_are_in(ranks, algorithm):
    there = {(0, rank): {rank} for rank in range(ranks)}
    made = parallel.additions(ranks, algorithm)
    for each in made:
        first, own = each.parts
        assert own[1] == each.rank != first[1]
        assert max(first[0], own[0]) < each.hop
        parts = there.pop(first), there.pop(own)
        assert not parts[0] & parts[1]
        there[each.hop, each.rank] = parts[0] | parts[1]
        assert there[each.hop, each.rank] == each.contents
    assert len(made) == ranks - 1
    assert list(there.values()) == [set(range(ranks))]


def test_a_ring_goes_once_around_and_ends_at_home():
    assert [each.rank for each in parallel.additions(4, "ring")] == [2, 3, 0]
    assert [each.rank for each in parallel.additions(4, "gloo")] == [2, 1, 0]
    assert [(each.hop, each.rank) for each in parallel.additions(4, "tree")] == [(1, 0), (1, 2), (2, 0)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: parallel.additions(25), ValueError, "ranks is at most 24 here, not 25"),
        (lambda: parallel.growth(torch.ones(4, 2), torch.float32, ranks=[5]), ValueError, "between 1 and 4"),
        (lambda: parallel.growth(torch.ones(1, 2), torch.float32), ValueError, "at least one"),
        (lambda: parallel.growth(torch.tensor(1.0), torch.float32), ValueError, "not a single number"),
    ],
)
def test_what_cannot_be_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
