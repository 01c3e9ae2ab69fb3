"""Right trainings one after the other in one process, in any order: none is accused for what another left."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons import audit
from tests.audit.plain_loops import mistakes
from tests.audit.test_watch_sharded import sharded_scaler
from tests.audit.test_watch_sharded import train as train_sharded
from tests.audit.trainings import TRAININGS, apply, batches, outcome, perceptron

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("one_rank")]

ROUNDS = [1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(2, 21))]


def in_parallel() -> Any:
    model = nn.parallel.DistributedDataParallel(perceptron())
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    for inputs, targets in batches():
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(inputs), targets)
        apply(loss, optimizer, scaler)
    return outcome(model, optimizer, scaler)


ALL: dict[str, Callable[[], Any]] = {
    **TRAININGS,
    "in_parallel": in_parallel,
    "sharded": lambda: train_sharded(sharded_scaler),
    "sharded_with_a_plain_scaler": lambda: train_sharded(lambda: torch.amp.GradScaler("cpu")),
}


@pytest.mark.timeout(300)
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
