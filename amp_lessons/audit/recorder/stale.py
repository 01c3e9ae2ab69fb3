"""Whether a layer ran on weights from before the last step, which autocast had kept in 16 bits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def is_stale(layer: nn.Linear, inputs: Tensor, outputs: Tensor) -> bool:
    """Whether ``outputs`` came from older weights of ``layer``: autocast's cache outlived a step."""
    dtype = outputs.dtype
    bias = None if layer.bias is None else layer.bias.detach().to(dtype)
    with torch.no_grad(), _autocast_paused(inputs.device.type):
        fresh = F.linear(inputs.detach().to(dtype), layer.weight.detach().to(dtype), bias).float()
    error = (outputs.detach().float() - fresh).norm()
    return bool(error > 4 * torch.finfo(dtype).eps * fresh.norm())


@contextlib.contextmanager
def _autocast_paused(device_type: str) -> Iterator[None]:
    """Switch autocast off without emptying its cache, as the end of an autocast context might."""
    torch.autocast_increment_nesting()
    try:
        with torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.autocast_decrement_nesting()
