"""What DistributedDataParallel sends: its buckets of gradients, by its own rule of assignment.

Its reducer reads tensors' values, so it cannot run on fake ones; but it lets itself be asked for the buckets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

_MIB = 2**20
_USUAL_BUCKET_MIB = 25  # where the signature says None: torch/nn/parallel/distributed.py


def gradient_buckets(model: nn.Module, backward: Callable[[], None]) -> list[list[Tensor]]:
    """Return the parameters of each bucket, as they are from the second step on, in the order of sending.

    DDP fills buckets in the order in which gradients are ready; ``backward`` is run to see it.
    """
    ready: list[Tensor] = []
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    handles = [each.register_post_accumulate_grad_hook(ready.append) for each in trained]
    try:
        backward()
    finally:
        for handle in handles:
            handle.remove()
    limits = [torch.distributed._DEFAULT_FIRST_BUCKET_BYTES, _bucket_bytes()]
    dense, order = [False] * len(ready), list(range(len(ready)))
    indices, _ = torch.distributed._compute_bucket_assignment_by_size(ready, limits, dense, order)
    return [[ready[index] for index in bucket] for bucket in indices]


def _bucket_bytes() -> int:
    default = inspect.signature(DistributedDataParallel).parameters["bucket_cap_mb"].default
    return int((_USUAL_BUCKET_MIB if default is None else default) * _MIB)


def buffers_by_dtype(model: nn.Module) -> dict[torch.dtype, int]:
    """Return the elements of buffers, which DDP broadcasts from rank 0 before each forward pass."""
    elements: dict[torch.dtype, int] = {}
    for buffer in model.buffers():
        elements[buffer.dtype] = elements.get(buffer.dtype, 0) + buffer.numel()
    return elements
