"""A linear function run forward and backward in a worker, with its casts to eight bits written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from amp_lessons.course.exercises import bed_there
from amp_lessons.course.exercises.small_formats.watching_there import CastWatch


def run(
    function: Callable[..., Any], args: list[Tensor], kwargs: dict[str, Any], behaviour: str
) -> dict[str, Any]:
    """Call a function on x and weight, and pass the third of ``args`` backward through what it returns.

    The result holds the ``output``, whether it ``has_graph``, the gradients ``to_x`` and ``to_weight``, the
    casts of both passes, and the exception of each, None where it raised none.
    """
    x, weight = (each.clone().requires_grad_() for each in args[:2])
    gradient = args[2].clone()

    def both() -> dict[str, Any]:
        forward, backward, gradients = _Pass(behaviour), _Pass(behaviour), None
        output = forward(function, x, weight)
        has_graph = isinstance(output, Tensor) and output.requires_grad
        if has_graph and output.shape == gradient.shape and output.dtype == gradient.dtype:
            gradients = backward(torch.autograd.grad, output, (x, weight), gradient, allow_unused=True)
        to_x, to_weight = gradients or (None, None)
        return {
            "output": output,
            "has_graph": has_graph,
            "to_x": to_x,
            "to_weight": to_weight,
            "forward": forward.casts,
            "backward": backward.casts,
            "raised": forward.raised,
            "raised_backward": backward.raised,
        }

    return {**bed_there.call(both, [], kwargs), "args": [x.detach(), weight.detach(), args[2]]}


def run_twice(
    function: Callable[..., Any], args: list[Tensor], kwargs: dict[str, Any], behaviour: str
) -> dict[str, Any]:
    """Call a function twice, the second time after the weight was changed in place; return its casts then."""
    x, weight = (each.clone().requires_grad_() for each in args)
    passes = _Pass(behaviour), _Pass(behaviour)

    def both() -> dict[str, Any]:
        for each in passes:
            each(function, x, weight)
            with torch.no_grad():
                weight.copy_(weight.flip(0))
        return {
            "casts": passes[1].casts,
            "raised": passes[0].raised,
            "raised_again": passes[1].raised,
        }

    return {**bed_there.call(both, [], kwargs), "args": args}


class _Pass:
    """One call, the casts in it, and what it raised."""

    def __init__(self, behaviour: str) -> None:
        self._watch = CastWatch(behaviour)
        self.raised: list[Any] | None = None

    def __call__(self, code: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._watch:
            returned, self.raised = bed_there.attempted(code, *args, **kwargs)
        return returned

    @property
    def casts(self) -> list[list[Any]]:
        return [[each.source, each.values, each.dtype] for each in self._watch.seen]
