"""Metrics summed in 16 bits: named where they stand still, or come far from what their terms come to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from amp_lessons import audit
from tests.audit.plain_loops import as_script, mistakes

Add = Callable[[Tensor, float], Tensor]

SPELLINGS: dict[str, Add] = {
    "+": lambda total, term: total + term,
    "a count": lambda total, term: total + torch.tensor(int(term)),
    "add_": lambda total, term: total.add_(term),
    "+=": lambda total, term: total.__iadd__(torch.tensor(term)),
}


def summed(add: Add, dtype: torch.dtype, terms: list[float]) -> set[str]:
    def run() -> Tensor:
        total = torch.zeros((), dtype=dtype)
        for term in terms:
            total = add(total, term)
        return total

    with audit.watch() as seen:
        as_script(run)()
    assert not seen.report.not_seen
    return mistakes(seen.report)


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("default", [nullcontext(), torch.device("cpu")], ids=["", "under a default device"])
def test_a_sum_that_comes_far_from_its_terms_or_stands_still_is_named_once(name, default):
    with default:
        assert summed(SPELLINGS[name], torch.bfloat16, [5.0] * 100) == {"metric_rounded"}
        assert summed(SPELLINGS[name], torch.bfloat16, [1.0] * 300) == {"metric_stops"}


@pytest.mark.parametrize(
    ("dtype", "terms"),
    [
        (torch.float32, [5.0] * 100),
        (torch.bfloat16, [5.0] * 20),  # as exact as one rounding
        (torch.bfloat16, [100.0, -99.0] * 20),  # the sum is small, its terms are not
    ],
    ids=["fp32", "short", "with signs"],
)
def test_good_sums_are_clean(dtype, terms):
    assert summed(SPELLINGS["+"], dtype, terms) == set()
