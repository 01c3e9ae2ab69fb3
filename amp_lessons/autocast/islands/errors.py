"""How far what was computed in 16 bits is from the same in fp32."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_MASKED = 1e30  # beyond it a number stands for infinity: what masks add to scores that are not to count
_NOTHING = 1e-6  # a root mean square below it is as good as 0


def relative_error(given: Any, right: Any) -> float:
    """Return the largest error of the floating tensors in ``given``, relative to the norm of the right one.

    It is inf where a number is not finite that is finite in ``right``, and where the two are of other shapes.
    """
    return max((_error(*pair) for pair in _pairs(given, right)), default=0.0)


def largest_magnitude(value: Any) -> float:
    """Return the largest finite magnitude of the floating tensors in a nested value, 0 without any."""
    magnitudes = [tensor.abs() for tensor in _floating(value)]
    counting = [each[each < _MASKED] for each in magnitudes]
    return max((float(each.max()) for each in counting if each.numel()), default=0.0)


def _pairs(given: Any, right: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    yield from zip(_floating(given), _floating(right), strict=False)


def _floating(value: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _error(given: torch.Tensor, right: torch.Tensor) -> float:
    if given.shape != right.shape:
        return math.inf
    given, right = _counting(given, right)
    if not right.numel():
        return 0.0
    wide = torch.promote_types(right.dtype, torch.float32)
    difference = _norm(given.to(wide) - right.to(wide))
    if not math.isfinite(difference):
        return math.inf
    return difference / max(_norm(right), _NOTHING * math.sqrt(right.numel()))


def _norm(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))  # squares of fp32 fit nothing less


def _counting(given: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values that count: where the right ones are finite, and no mask's stand-in for infinity."""
    counting = right.abs() < _MASKED
    return (given, right) if bool(counting.all()) else (given[counting], right[counting])
