"""The same training with a watch and without: the same bit for bit, and nothing is found in right ones.

Nor is it when they follow each other in one process, in any order, for what another one has left.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from amp_lessons import audit
from tests.audit.plain_loops import mistakes
from tests.audit.test_watch_sharded import sharded_scaler
from tests.audit.test_watch_sharded import train as train_sharded
from tests.audit.trainings import TRAININGS, apply, batches, loss_of, outcome, perceptron
from tests.audit.where import WHERE

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


# --- one after another

ROUNDS = [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 21))]


def in_parallel() -> Any:
    model = nn.parallel.DistributedDataParallel(perceptron())
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for inputs, targets in batches():
        apply(loss_of(model, inputs, targets, torch.float16), optimizer, scaler)
    return outcome(model, optimizer, scaler)


ALL: dict[str, Callable[[], Any]] = {
    **TRAININGS,
    "in_parallel": in_parallel,
    "sharded": lambda: train_sharded(sharded_scaler),
    "sharded_with_a_plain_scaler": lambda: train_sharded(lambda: torch.amp.GradScaler("cpu")),
}


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("seed", ROUNDS)
def test_none_is_accused(seed):
    order = random.Random(seed)
    names = order.sample(sorted(ALL), len(ALL))
    left = []  # of trainings before: their weights stay in memory, as a notebook's do
    gc.disable()  # and so does what only the collector would free
    try:
        for name in names:
            torch.manual_seed(seed)
            with audit.watch(every=order.choice([1, 2, 10])) as seen:
                left.append(ALL[name]())
            assert mistakes(seen.report) == set(), f"{name}, after {names[: names.index(name)]}"
            if order.random() < 0.5:
                left.clear()
    finally:
        gc.enable()
