"""What each rank does: train on its part of each problem, while its collectives are noted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import nn

from amp_lessons.course.exercises import loops_there, ranks_there
from amp_lessons.parallel.collectives import CollectiveLog

_TRAINING = "training"


def train(loop: Callable[..., Any], problems: list[list[loops_there.Given]]) -> list[dict[str, Any]]:
    """Train on this rank's part of each problem, until the loop raises; return what was written down."""
    told: list[dict[str, Any]] = []
    for of_ranks in problems:
        told.append(_train(loop, of_ranks[dist.get_rank()]))
        if told[-1]["raised"]:
            ranks_there.leave()
            break
    return told


def _train(loop: Callable[..., Any], given: loops_there.Given) -> dict[str, Any]:
    """Train once; ``reductions`` are those from the first forward pass on, for gradients come later."""
    log, returned = CollectiveLog(), []

    def logged(model: nn.Module, *args: Any, device_type: str, **options: Any) -> Any:
        hook = model.register_forward_pre_hook(lambda *call: setattr(log, "phase", _TRAINING))
        with log:
            returned.append(loop(model, *args, **options))
        hook.remove()
        return returned[0]

    told = loops_there.train(logged, given)
    calls = [each for each in log.calls if "reduce" in each.name and each.phase == _TRAINING]
    reductions = [(each.dtype, each.elements) for each in calls]
    return {**told, "returned": returned, "reductions": reductions}
