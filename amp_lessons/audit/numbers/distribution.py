"""How the ranks of a training share its parameters: each holds all of them, or a part."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.recorder.later import is_distributed

NOT_SEEN = (
    "what is done to gradients in distributed tensors before a step, but for the scaler's work and clipping: "
    "of such tensors a rank's own shards are looked at, when it steps"
)


def several_ranks() -> bool:
    """Whether this process is one of several that train together."""
    available = torch.distributed.is_available() and torch.distributed.is_initialized()
    return available and torch.distributed.get_world_size() > 1


def part_of(parameter: Tensor) -> str:
    """Name the part that this rank holds, "1/2" of the first of two shards; "" for all of it."""
    if not is_distributed(parameter):
        return ""
    mesh: Any = parameter.device_mesh  # type: ignore[attr-defined]
    at = mesh.get_coordinate() or [0] * mesh.ndim  # a rank outside of the mesh holds nothing
    parts = (
        f"{at[i] + 1}/{mesh.size(i)}"
        for i, placement in enumerate(parameter.placements)  # type: ignore[attr-defined]
        if placement.is_shard()
    )
    return ", ".join(parts)


def replicas() -> frozenset[int]:
    """Return the ids of the parameters that ``DistributedDataParallel`` keeps equal on all ranks."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None or not several_ranks():
        return frozenset()
    wrapper = module.DistributedDataParallel
    # by type(), not isinstance: asking a proxy object for its class may run anybody's code
    living = [each for each in gc.get_objects() if issubclass(type(each), wrapper)]
    return frozenset(id(parameter) for each in living for parameter in each.parameters())


def is_sharded(parameters: Iterable[Tensor]) -> bool:
    """Whether a rank holds only parts of some of the parameters."""
    return any(part_of(parameter) for parameter in parameters)
