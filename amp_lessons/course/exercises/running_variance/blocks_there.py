"""Blocks that a function reads once, in a worker: which of them it keeps, and whether it leaves fp32."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from amp_lessons.course.exercises import bed_there

_INTO_PYTHON = ("item", "tolist", "__float__", "numpy", "__array__")


class _Blocks:
    """Hands out block after block, and notes how many before the one at hand were kept at once."""

    def __init__(self, blocks: list[Tensor]) -> None:
        self._blocks, self.kept, self.read = blocks, 0, 0

    def __iter__(self) -> Iterator[Tensor]:
        given: list[weakref.ref[Tensor]] = []
        for block in self._blocks:
            self.kept = max(self.kept, sum(ref() is not None for ref in given[:-1]))
            fresh = block.clone()
            given.append(weakref.ref(fresh))
            self.read += 1
            yield fresh
            del fresh


class _Wide(TorchFunctionMode):
    """Notice what leaves fp32 for more digits."""

    seen = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _INTO_PYTHON:
            self.seen = self.seen or f"{name}() took numbers out of a tensor, and Python's are fp64"
        if isinstance(result, Tensor) and result.dtype == torch.float64:
            self.seen = self.seen or "a tensor in fp64 was made"
        return result


def call(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function with an iterator over the blocks in ``args``; say beside its result what was seen."""
    blocks = _Blocks(args)
    with _Wide() as wide:
        told = bed_there.call(function, [iter(blocks)], kwargs)
    return {**told, "result": [told["result"], wide.seen, blocks.kept, blocks.read], "args": args}
