"""What each rank does: train with a learner's shards, beside one process that keeps everything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises.attempt import require_none, run
from amp_lessons.exercises.sharded_masters import mistakes
from amp_lessons.exercises.sharded_masters.mistakes import Beside
from amp_lessons.parallel.collectives import Collective, CollectiveLog

_FEATURES, _HIDDEN, _OUTPUTS = 5, 7, 3
_FAINT = 2.0**-18  # of such a loss fp16 holds gradients that lose a bit when they are divided
_LOSS_WEIGHTS = (1.0, _FAINT, 1.0)  # of each step
_RATE = 2.0**-9  # updates so small that 16 bits would lose most of them
_POISON = 1e6  # beyond fp16, within bf16


def train(attempt: type, dtypes: tuple[torch.dtype, ...]) -> list[Finding]:
    """Train in each of the dtypes; return what is to be remarked. Raises Rejected for what is wrong."""
    return [remark for seed, dtype in enumerate(dtypes) for remark in _train(attempt, dtype, seed)]


def _train(attempt: type, dtype: torch.dtype, seed: int) -> list[Finding]:
    model = _model(seed)
    beside = Beside(model, dtype)
    sharded = run(attempt, model, dtype)
    require_none(mistakes.of_shard(model, sharded, beside))
    shard = sharded.shard
    optimizer = torch.optim.SGD([shard], lr=_RATE)
    for loss_weight, batches in zip(_LOSS_WEIGHTS, _steps(seed), strict=True):
        loss_fn = partial(_loss, loss_weight)
        sent = _watched(sharded.gather, "gather")
        require_none(mistakes.of_gathering(model, sharded, beside, sent))
        inputs, targets = batches[dist.get_rank()]
        loss_fn(model, inputs.to(dtype), targets).backward()
        beside.compute(batches, loss_fn)
        sent = _watched(sharded.reduce, "reduce")
        require_none(mistakes.of_reducing(model, sharded, shard, beside, sent))
        if bool(beside.gradient.isfinite().all()):  # a scaler of all ranks would skip the others
            optimizer.step()
            beside.step(_RATE)
        optimizer.zero_grad()
        require_none(mistakes.of_masters(model, sharded, beside))
    return list(mistakes.of_traffic(beside, sent))


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
    for step in range(len(_LOSS_WEIGHTS)):
        batches = []
        for rank in range(dist.get_world_size()):
            inputs = torch.randn(4 + rank, _FEATURES, generator=draw)
            targets = torch.randn(4 + rank, _OUTPUTS, generator=draw) * math.exp(rank)
            poison = _POISON if step == len(_LOSS_WEIGHTS) - 1 and rank == 1 else 1.0
            batches.append((inputs, targets * poison))
        yield batches


def _loss(weight: float, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return weight * F.mse_loss(model(inputs).float(), targets)
