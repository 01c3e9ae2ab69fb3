"""Blocks that are handed out once in a worker, and what is still held when more are asked for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.course.exercises import bed_there

# What picks numbers out of a tensor, or moves them, and rounds none
_EXACT = {"amax", "max", "maximum", "clone", "clamp", "clamp_min", "cat", "stack", "copy_", "masked_fill"}


def call(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype | None
) -> dict[str, Any]:
    """Call a function with an iterator over the blocks in ``args``, under autocast to ``dtype`` if any.

    What it ``returned`` or ``raised`` is told beside what was seen meanwhile.
    """
    blocks = HandOut(args)

    def watched() -> dict[str, Any]:
        with blocks, torch.autocast("cpu", dtype) if dtype else nullcontext():
            returned, raised = bed_there.attempted(function, blocks)
        blocks.take_back()
        seen = {name: getattr(blocks, name) for name in ("changed", "asked_again", "rounded_by", "most_held")}
        return {**seen, "returned": returned, "raised": raised}

    return {**bed_there.call(watched, [], kwargs), "args": args}


class HandOut(TorchDispatchMode):
    """An iterator over copies of blocks, and while it is entered a watch over what is computed.

    ``asked_again`` says that a block was asked for after the end, ``changed`` that one was changed in place.
    ``most_held`` is the most bytes that were in memory when a block was asked for, of the blocks and of what
    was made since. ``rounded_by`` names the first operation that rounded to 16 bits.
    """

    def __init__(self, blocks: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.asked_again = self.changed = self._ended = False
        self.most_held, self.rounded_by = 0, ""
        self._held: dict[int, int] = {}
        # Made before the watch begins, and let go as they are handed out
        self._waiting = [(scores.clone(), values.clone()) for scores, values in reversed(blocks)]
        self._given: tuple[Tensor, ...] = ()

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return self

    def __next__(self) -> tuple[Tensor, ...]:
        self.take_back()
        self.most_held = max(self.most_held, sum(self._held.values()))
        if not self._waiting:
            self.asked_again, self._ended = self._ended, True
            raise StopIteration
        self._given = self._waiting.pop()
        for tensor in self._given:
            self._note(tensor)
        return self._given

    def take_back(self) -> None:
        """Look whether the last block was changed, and hold it no longer."""
        self.changed |= any(tensor._version > 0 for tensor in self._given)
        self._given = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor):
                self._note(tensor)
                moved = (
                    func.is_view or name in _EXACT or (name == "_to_copy" and args[0].dtype == tensor.dtype)
                )
                if tensor.dtype in (torch.float16, torch.bfloat16) and not moved and not self.rounded_by:
                    self.rounded_by = "a cast" if name == "_to_copy" else name.strip("_")
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._held:
            self._held[key] = storage.nbytes()
            weakref.finalize(storage, self._held.pop, key)
