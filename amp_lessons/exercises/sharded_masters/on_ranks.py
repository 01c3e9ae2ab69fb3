"""What each rank does: train with a learner's shards, beside one process that keeps everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.exercises.attempt import require_none, run
from amp_lessons.exercises.sharded_masters import mistakes
from amp_lessons.exercises.sharded_masters.beside import Beside
from amp_lessons.parallel.collectives import Collective, CollectiveLog

_FEATURES, _HIDDEN, _OUTPUTS = 5, 7, 3
_BATCHES = 3
_RATE = 2.0**-9  # updates so small that 16 bits would lose most of them
_POISON = 1e6  # beyond fp16, within bf16


def train(attempt: type, dtypes: tuple[torch.dtype, ...]) -> None:
    """Train in each of the dtypes. Raises Rejected for what is wrong."""
    for seed, dtype in enumerate(dtypes):
        _train(attempt, dtype, seed)


def _train(attempt: type, dtype: torch.dtype, seed: int) -> None:
    model = _model(seed)
    beside = Beside(model, dtype)
    sharded = run(attempt, model, dtype)
    require_none(mistakes.of_shard(sharded, beside))
    shard = sharded.shard
    optimizer = torch.optim.SGD([shard], lr=_RATE)
    for batches in _steps(seed):
        sent = _watched(sharded.gather, "gather")
        require_none(mistakes.of_gathering(model, sharded, beside, sent))
        inputs, targets = batches[dist.get_rank()]
        _loss(model, inputs.to(dtype), targets).backward()
        beside.compute(batches, _loss)
        sent = _watched(sharded.reduce, "reduce")
        require_none(mistakes.of_reducing(model, sharded, shard, beside, sent))
        if bool(beside.gradient.isfinite().all()):  # a scaler of all ranks would skip the others
            optimizer.step()
            beside.step(_RATE)
        optimizer.zero_grad()
        require_none(mistakes.of_masters(sharded, beside))


def _watched(method: Callable[[], Any], name: str) -> list[Collective]:
    log = CollectiveLog()

    def logged() -> None:
        with log:
            method()

    run(logged, part=name, about=f"in {name}")
    return log.calls


def _model(seed: int) -> nn.Module:
    """Make the same model on every rank; its weights cannot be shared out evenly."""
    draw = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(_FEATURES, _HIDDEN), nn.Tanh(), nn.Linear(_HIDDEN, _OUTPUTS, bias=False))
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=draw) * 0.5
    assert sum(map(torch.numel, model.parameters())) % dist.get_world_size()
    return model


def _steps(seed: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Yield the batches of all ranks, step by step; in the last one rank 1's gradients overflow in fp16."""
    draw = torch.Generator().manual_seed(100 + seed)
    for step in range(_BATCHES):
        batches = []
        for rank in range(dist.get_world_size()):
            inputs = torch.randn(4 + rank, _FEATURES, generator=draw)
            targets = torch.randn(4 + rank, _OUTPUTS, generator=draw) * math.exp(rank)
            poison = _POISON if step == _BATCHES - 1 and rank == 1 else 1.0
            batches.append((inputs, targets * poison))
        yield batches


def _loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(model(inputs).float(), targets)
