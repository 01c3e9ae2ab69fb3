"""What runs in the worker for a step from nothing: the loss that it is given, and what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class _Spoilt(torch.autograd.Function):
    """The identity, whose gradient has one number that is not finite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bad: float) -> Tensor:
        ctx.bad = bad
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        spoilt = gradients[0].clone()
        spoilt.view(-1)[0] = ctx.bad
        return spoilt, None


def make(
    step: Callable[..., Any],
    weights: list[Tensor],
    batch: tuple[Tensor, Tensor],
    lr: float,
    scale: float,
    loss_weight: float,
    broken: int | None,
    bad: float,
) -> dict[str, Any]:
    """Let the step be made; return what it returned, the weights after it, and how the loss was asked for.

    The loss is that of two layers and an elementwise gain, times ``loss_weight``, in fp32; the layers run in
    the dtype of the weights. The gradient of the weight ``broken`` gets a ``bad`` number.
    """
    given: list[list[torch.dtype]] = []
    values: list[float] = []

    def loss_fn(weights: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        used = list(weights)
        given.append([weight.dtype for weight in used])
        if broken is not None:
            used[broken] = _Spoilt.apply(used[broken], bad)
        first, gain, second = used
        inputs, targets = batch
        hidden = torch.tanh(inputs.to(first.dtype) @ first) * gain
        loss = (hidden @ second - targets.to(first.dtype)).float().square().mean() * loss_weight
        values.append(float(loss.detach()))
        return loss

    handed = list(weights)
    returned = step(handed, loss_fn, batch, lr, scale)
    kept = len(handed) == len(weights) and all(a is b for a, b in zip(handed, weights, strict=True))
    return {"returned": returned, "after": weights, "kept": kept, "given": given, "values": values}
