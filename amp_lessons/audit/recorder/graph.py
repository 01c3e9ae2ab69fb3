"""Read from autograd's graph how a loss came about, and mark in it what a scaler has scaled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from amp_lessons.audit.recorder.later import is_free_to_read

_KEY = "amp_lessons.scaler"
_WENT_BACKWARD = "amp_lessons.backward"
_FAR_ENOUGH = 16  # operations: a scaled loss divided by the number of micro-batches, a sum of two losses


def operations(tensor: Tensor) -> tuple[str, ...]:
    """Name the last operations that made a tensor, the last one first, as autograd calls them."""
    return tuple(node.name() for node in _nodes(tensor))


def has_casts(tensor: Tensor) -> bool:
    """Whether something was cast on the way to a loss, as autocast does it."""
    return any("ToCopy" in node.name() for node in _nodes(tensor))


def made_after(tensor: Tensor, count: int | None) -> bool:
    """Whether a loss came about after autograd's count of operations had reached ``count``.

    What only multiplies or divides it afterwards does not tell.
    """
    node = _loss_itself(tensor)
    return count is not None and node is not None and node._sequence_nr() >= count


def factor(tensor: Tensor) -> float:
    """Return by which number a loss was multiplied last, 1 where it was not, or not by a number."""
    node: Any = tensor.grad_fn
    if node is None or node.name() != "MulBackward0":
        return 1.0
    try:
        other = node._saved_other
    except RuntimeError:  # the graph has been freed
        return 1.0
    if isinstance(other, Tensor):
        return float(other) if other.numel() == 1 and is_free_to_read(other) else 1.0
    return float(other) if isinstance(other, (int, float)) else 1.0


def went_backward(tensor: Tensor) -> bool:
    """Mark a loss as one that went backward; say whether it was marked before.

    Parts of it, as 0.25 and 0.75 times the loss, are losses of their own.
    """
    node = _scaled_loss(tensor)
    if node is None:
        return False
    before = _WENT_BACKWARD in node.metadata
    node.metadata[_WENT_BACKWARD] = True
    return before


def _loss_itself(tensor: Tensor) -> Any:
    """Return the node of a loss below what multiplies, divides or casts it."""
    factors = ("MulBackward", "DivBackward", "ToCopyBackward")
    return next((each for each in _nodes(tensor) if not each.name().startswith(factors)), None)


def _scaled_loss(tensor: Tensor) -> Any:
    """Return the node of a loss below what a scaler, or a cast, made of it."""
    return next((n for n in _nodes(tensor) if _KEY not in n.metadata and "ToCopy" not in n.name()), None)


def mark(tensor: Any, scaler: int) -> None:
    """Write into the graph of a scaled loss which scaler it was."""
    if isinstance(tensor, Tensor) and tensor.grad_fn is not None:
        node: Any = tensor.grad_fn
        node.metadata[_KEY] = scaler


def is_marked(node: Any) -> bool:
    """Whether a node made a scaled loss, or divided one."""
    following = [before for before, _ in node.next_functions if before is not None]
    return _KEY in node.metadata or any(_KEY in each.metadata for each in following)


def scaler_of(tensor: Tensor) -> int | None:
    """Return the scaler by whose scale a loss was multiplied, None if it was by none."""
    return next((node.metadata[_KEY] for node in _nodes(tensor) if _KEY in node.metadata), None)


def _nodes(tensor: Tensor) -> Iterator[Any]:
    waiting = [tensor.grad_fn]
    for _ in range(_FAR_ENOUGH):
        node = waiting.pop(0) if waiting else None
        if node is not None:
            yield node
            waiting.extend(before for before, _ in node.next_functions)
