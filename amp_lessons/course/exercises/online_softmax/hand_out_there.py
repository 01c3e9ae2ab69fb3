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

    def watched() -> tuple[Any, list[Any] | None]:
        with blocks, torch.autocast("cpu", dtype) if dtype else nullcontext():
            ended = bed_there.attempted(function, blocks)
        blocks.take_back()
        return ended

    called = bed_there.call(watched, [], kwargs)
    returned, raised = called["result"]
    seen = {"changed": blocks.changed, "asked_again": blocks.asked_again, "rounded_by": blocks.rounded_by}
    seen |= {"returned": returned, "raised": raised, "most_held": blocks.most_held}
    return {**called, "result": seen, "args": args}


class HandOut(TorchDispatchMode):
    """An iterator over copies of blocks, and while it is entered a watch over what is computed.

    ``asked_again`` says that a block was asked for after the end, ``changed`` that one was changed in place.
    ``most_held`` is the most bytes that were in memory when a block was asked for, of the blocks and of what
    was made since. ``rounded_by`` names the first operation that rounded to 16 bits.
    """

    def __init__(self, blocks: list[tuple[Tensor, Tensor]]) -> None:
        super().__init__()
        self.asked_again = self.changed = False
        self.most_held = 0
        self.rounded_by = ""
        self._held: dict[int, int] = {}
        self._watches: dict[int, weakref.ref[Any]] = {}
        # Made before the watch begins, and let go as they are handed out
        self._originals = blocks
        self._waiting = [(scores.clone(), values.clone()) for scores, values in reversed(self._originals)]
        self._given: tuple[Tensor, Tensor] | None = None
        self._looking = self._ended = False

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
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
        """Look whether the last block is as it was given, and hold it no longer."""
        self._looking = True
        if self._given is not None:
            original = self._originals[-1 - len(self._waiting)]
            pairs = zip(original, self._given, strict=True)
            self.changed |= not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)
        self._given, self._looking = None, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, Tensor) and not self._looking:
                self._note(tensor)
                self._look_for_rounding(func, tensor, args)
        return result

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._held:
            key = storage._cdata
            self._held[key] = storage.nbytes()
            self._watches[key] = weakref.ref(storage, lambda _: self._freed(key))

    def _freed(self, key: int) -> None:
        del self._held[key], self._watches[key]

    def _look_for_rounding(self, func: Any, result: Tensor, args: Any) -> None:
        name = func.overloadpacket.__name__
        half = result.dtype in (torch.float16, torch.bfloat16)
        moved = name in _EXACT or func.is_view or _was_half_already(name, result, args)
        if half and not moved and not self.rounded_by:
            self.rounded_by = "a cast" if name == "_to_copy" else name.strip("_")


def _was_half_already(name: str, result: Tensor, args: Any) -> bool:
    return name == "_to_copy" and args[0].dtype == result.dtype
