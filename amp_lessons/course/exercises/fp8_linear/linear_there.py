"""A linear function run forward and backward in a worker, with what it casts to eight bits written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from amp_lessons.course.exercises import bed_there
from amp_lessons.course.exercises.small_formats.watching_there import CastWatch


def run(
    function: Callable[..., Any], args: list[Tensor], kwargs: dict[str, Any], behaviour: str
) -> dict[str, Any]:
    """Call a function on x and weight, and pass the third of ``args`` backward through what it returns.

    It has been called once before, with another weight, which was then changed in place as by an optimizer.
    """
    x, gradient = args[0].clone().requires_grad_(), args[2]
    weight = args[1].flip(0).requires_grad_()

    def passes() -> dict[str, Any]:
        function(x, weight)
        with torch.no_grad():
            weight.copy_(args[1])
        with CastWatch(behaviour) as forward:
            output = function(x, weight)
        with CastWatch(behaviour) as backward:
            gradients, raised = bed_there.attempted(_gradients, output, (x, weight), gradient)
        return {
            "results": [output, *(gradients or (None, None))],
            "raised": raised,
            "forward": forward.seen,
            "backward": backward.seen,
        }

    return {**bed_there.call(passes, [], kwargs), "args": [x.detach(), weight.detach(), gradient]}


def _gradients(output: Any, leaves: tuple[Tensor, ...], gradient: Tensor) -> Sequence[Tensor | None]:
    has_graph = isinstance(output, Tensor) and output.requires_grad
    return torch.autograd.grad(output, leaves, gradient, allow_unused=True) if has_graph else [None] * 2
