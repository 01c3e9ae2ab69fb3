"""The same training with a watch and without: the same bit for bit, and nothing is found in right ones."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from amp_lessons import audit
from tests.audit.plain_loops import mistakes
from tests.audit.trainings import TRAININGS, WHERE

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_thread")]


def run(name: str) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    return TRAININGS[name](), random.random()


def assert_same(one: Any, other: Any) -> None:
    """Compare nests of dicts, lists and tensors bit for bit; NaN equals NaN."""
    assert type(one) is type(other)
    if isinstance(one, Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one.nan_to_num(), other.nan_to_num())
        assert torch.equal(one.isnan(), other.isnan())
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        assert_same(list(one.values()), list(other.values()))
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, yours in zip(one, other, strict=True):
            assert_same(mine, yours)
    else:
        assert repr(one) == repr(other)


@pytest.mark.parametrize("where", WHERE, indirect=True)
@pytest.mark.parametrize("name", TRAININGS)
def test_training_is_the_same_and_nothing_is_found(name, where):
    if name == "forked_workers" and where == "cuda":
        pytest.skip("a child that was forked cannot use CUDA")
    alone = run(name)
    with audit.watch(every=2) as seen:
        watched = run(name)
    assert_same(alone, watched)
    assert mistakes(seen.report) == set()
    assert len(seen.steps) >= 2
    assert not [each for each in seen.report.not_seen if "trouble" in each]
    assert any("compiled" in each for each in seen.report.not_seen) == name.startswith("compiled")
