"""What runs in the worker for a rotation: autocast around it, and a gradient that goes back through it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from amp_lessons.course.exercises.bed_there import call


def rotated(
    rotate: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    autocast: torch.dtype | None,
    coming: Tensor,
) -> dict[str, Any]:
    """Call a rotation under autocast in a dtype, or none; its result is a pair.

    The second is what the gradient ``coming`` is for the first argument; None where there is no way back.
    """
    leaf = args[0].requires_grad_()
    with nullcontext() if autocast is None else torch.autocast("cpu", autocast):
        told = call(rotate, [leaf.clone(), *args[1:]], kwargs)
    result, gradient = told["result"], None
    if isinstance(result, Tensor) and result.requires_grad:
        (gradient,) = torch.autograd.grad(result, leaf, coming, allow_unused=True)
    return {**told, "result": (result, gradient)}
