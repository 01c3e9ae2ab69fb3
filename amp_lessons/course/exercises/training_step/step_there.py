"""What runs in the worker for a step from nothing: the loss that it is given, and what it did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def loss_of(weights: Sequence[Tensor], batch: Any, loss_weight: float) -> Tensor:
    """Return the loss of two layers and an elementwise gain, which run in the dtype of the weights."""
    (first, gain, second), (inputs, targets) = weights, (each.to(weights[0].dtype) for each in batch)
    return ((torch.tanh(inputs @ first) * gain) @ second - targets).float().square().mean() * loss_weight


def make(step: Any, weights: list[Tensor], batch: Any, lr: float, scale: float, *how: Any) -> dict[str, Any]:
    """Let the step be made; return what it returned, the weights after it, and how the loss was asked for.

    ``how``: by what the loss is multiplied, and which weight's gradient, if any, gets which number.
    """
    loss_weight, broken, bad = how
    given: list[list[torch.dtype]] = []

    def spoilt(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[(0,) * gradient.dim()] = bad
        return gradient

    def loss_fn(weights: Any, batch: Any) -> Tensor:
        used = list(weights)
        given.append([weight.dtype for weight in used])
        if broken is not None and used[broken].requires_grad:
            used[broken] = used[broken].view_as(used[broken])  # a hook of this call alone
            used[broken].register_hook(spoilt)
        return loss_of(used, batch, loss_weight)

    handed = list(weights)
    returned = step(handed, loss_fn, batch, lr, scale)
    kept = len(handed) == len(weights) and all(a is b for a, b in zip(handed, weights, strict=True))
    return {"returned": returned, "after": weights, "kept": kept, "given": given}
