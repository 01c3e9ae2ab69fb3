"""A story of clean iterations and overflows, and what a scaler does in each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises import conduct
from amp_lessons.exercises.bench import device_type

SETTINGS = {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3}
BAD = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
# one entry per iteration: . clean, u clean with an explicit unscale_, or a kind of overflow; six clean ones
# in a row grow twice, the last overflows bring the scale below 1
_STORY = (
    ".",
    "u",
    ".",
    ".",
    "inf",
    ".",
    ".",
    "nan",
    "u",
    ".",
    ".",
    ".",
    ".",
    ".",
    "-inf",
    "inf",
    ".",
    ".",
    ".",
    "last",
    "inf",
    ".",
)


class NoGraphError(Exception):
    """What scale() returned is nothing that backward can start from."""


@dataclass(frozen=True)
class Moment:
    """What could be seen in one iteration, from the scaled loss to the scale after update."""

    event: str
    scaled_loss: float
    unscaled: Tensor | None
    moved: Tensor
    true_gradient: Tensor
    scale_before: float
    scale_after: Any


def live(make: Callable[[], Any], progress: list[str]) -> list[Moment]:
    """Take a scaler through the story. ``progress`` says at any time what is being done."""
    device = device_type()
    progress.append("LossScaler(init_scale, growth_factor, backoff_factor, growth_interval)")
    scaler = make()
    first = torch.nn.Parameter(torch.tensor([1.0, -2.0], device=device))
    second = torch.nn.Parameter(torch.tensor([[0.5]], device=device))
    unused = torch.nn.Parameter(torch.zeros(2, device=device))
    optimizer = torch.optim.SGD([{"params": [first, unused]}, {"params": [second]}], lr=1.0)
    moments = []
    for count, event in enumerate(_STORY):
        optimizer.zero_grad()
        factors = torch.tensor([0.25, -0.5], device=device) * (count + 1)
        loss = (first * factors).sum() + second.sum() * 0.125
        progress.append("get_scale")
        scale_before = scaler.get_scale()
        progress.append("scale")
        scaled = scaler.scale(loss)
        if not isinstance(scaled, Tensor) or scaled.grad_fn is None:
            raise NoGraphError(conduct.describe(scaled))
        scaled.backward()
        _spoil(first if event in BAD else second, BAD.get(event, math.inf if event == "last" else 0.0))
        unscaled = None
        if event == "u":
            progress.append("unscale_")
            scaler.unscale_(optimizer)
            unscaled = _joined_gradient(first, second)
        before = _joined(first, second)
        progress.append("step")
        scaler.step(optimizer)
        progress.append("update")
        scaler.update()
        progress.append("get_scale")
        true_gradient = torch.cat([factors.cpu(), torch.tensor([0.125])])
        moved = before - _joined(first, second)
        moments.append(
            Moment(
                event,
                float(scaled.detach()),
                unscaled,
                moved,
                true_gradient,
                scale_before,
                scaler.get_scale(),
            )
        )
    return moments


def _spoil(parameter: torch.nn.Parameter, amount: float) -> None:
    if parameter.grad is not None and amount != 0.0:
        parameter.grad.view(-1)[0] = amount


def _joined(*tensors: Tensor) -> Tensor:
    return torch.cat([t.detach().reshape(-1).cpu() for t in tensors]).clone()


def _joined_gradient(*parameters: torch.nn.Parameter) -> Tensor:
    return _joined(*(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters))
