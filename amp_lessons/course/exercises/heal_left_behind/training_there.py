"""What runs in the worker for a moving average: a model whose weights drift, and what was returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.course.exercises.bed_there import call

_earlier: list[Any] = []  # what calls have returned, the very objects


def network(dtype: torch.dtype) -> nn.Sequential:
    """Make a small model with a frozen parameter, which has an average too, and a buffer, which has none."""
    model = nn.Sequential(nn.Linear(8, 6), nn.LayerNorm(6)).to(dtype)
    model[0].bias.requires_grad_(False)
    model.register_buffer("seen", torch.zeros(()))
    return model


def drifted(start: Tensor, end: Tensor, share: float) -> Tensor:
    """Return a weight after this share of its way, in fp64."""
    return start + (end - start) * share


def train(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Let a model be trained whose weights go from ``starts`` to ``ends``, by name, a little in each step.

    The result says what was returned, which of it has a graph, how often ``step`` was called, what the
    weights were then, and what this and earlier calls have returned once they have changed again.
    """
    dtype, starts, ends, steps, decay = args
    model, called = network(dtype), 0

    def step() -> None:
        nonlocal called
        called += 1
        move(called / max(steps, 1))

    @torch.no_grad()
    def move(share: float) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(drifted(starts[name], ends[name], share))

    move(0.0)
    told = call(function, [model, step, steps, decay], kwargs)
    found = told["result"]
    _earlier.append(found)
    seen = {
        "returned": _copied(found),
        "graphs": [
            name for name, value in _items(found) if isinstance(value, Tensor) and value.requires_grad
        ],
        "called": called,
        "weights": {name: each.detach().clone() for name, each in model.named_parameters()},
    }
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    return {**told, "args": [], "result": {**seen, "afterwards": [_copied(each) for each in _earlier]}}


def _items(found: Any) -> list[tuple[Any, Any]]:
    return list(found.items()) if isinstance(found, dict) else []


def _copied(found: Any) -> Any:
    if not isinstance(found, dict):
        return found
    return {name: each.detach().clone() if isinstance(each, Tensor) else each for name, each in _items(found)}
