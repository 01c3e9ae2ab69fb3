"""What runs in a worker for exercises that cast: PyTorch's casts watched, by either of its behaviours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from amp_lessons.course.exercises.bed_there import call
from amp_lessons.course.exercises.small_formats.watching_there import CastWatch


def cast_as(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], behaviour: str
) -> dict[str, Any]:
    """Call a function where what is too large for eight bits becomes what ``behaviour`` says."""
    with CastWatch(behaviour):
        return call(function, args, kwargs)


def rounded_by_hand(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function, and notice whether PyTorch rounded to bf16 for it."""
    with _CastWatch() as watch:
        told = call(function, args, kwargs)
    return {**told, "noticed": watch.seen}


class _CastWatch(TorchFunctionMode):
    """Record whether PyTorch rounded to bf16; a cast that changes no value does not count."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs))
        rounds = func is not Tensor.view and any(_needs_rounding(each) for each in given)  # before it changes
        result = func(*args, **(kwargs or {}))
        made = args[0] if func is Tensor.__setitem__ else result
        self.seen |= rounds and isinstance(made, Tensor) and made.dtype == torch.bfloat16
        return result


def _needs_rounding(given: Any) -> bool:
    """Whether bf16 lacks one of these numbers; whole ones beside tensors are sizes and places."""
    if not isinstance(given, Tensor | np.ndarray | float):
        return False
    values = torch.as_tensor(given).detach().double()
    return bool((values.isfinite() & (values.bfloat16().double() != values)).any())
