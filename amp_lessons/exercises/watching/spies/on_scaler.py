"""Write down every call of a scaler's methods, with the scale at that moment."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises.watching.spies.on_device import note_old_spelling, own_device
from amp_lessons.exercises.watching.tape import CallName, Patch, Tape


def _note(tape: Tape, name: CallName, scaler: torch.amp.GradScaler, **seen: Any) -> None:
    tape.call(name, scaler, scale=_scale_of(scaler), enabled=scaler.is_enabled(), **seen)


def _scale_of(scaler: torch.amp.GradScaler) -> float:
    with contextlib.suppress(Exception):
        return scaler.get_scale()
    return math.nan


def _made_scaler(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        note_old_spelling(tape, type(self), "GradScaler")
        original(self, own_device(tape, device, "GradScaler"), *args, **kwargs)
        _note(tape, "GradScaler", self)

    return __init__


def _scaled(tape: Tape, original: Any) -> Any:
    def scale(self: Any, outputs: Any) -> Any:
        _note(tape, "scale", self, **(_described(outputs) if isinstance(outputs, Tensor) else {}))
        return original(self, outputs)

    return scale


_FAR_ENOUGH = 16  # operations: a sum of two losses, each a mean of something


def _described(outputs: Tensor) -> dict[str, Any]:
    return {"dtype": outputs.dtype, "elements": outputs.numel(), "made_by": tuple(_made_by(outputs))}


def _made_by(outputs: Tensor) -> Iterator[str]:
    """Name the last operations that made ``outputs``, the last one first, as autograd calls them."""
    waiting = [outputs.grad_fn]
    for _ in range(_FAR_ENOUGH):
        node = waiting.pop(0) if waiting else None
        if node is not None:
            yield node.name()
            waiting.extend(before for before, _ in node.next_functions)


def _unscaled(tape: Tape, original: Any) -> Any:
    def unscale_(self: Any, optimizer: Any) -> None:
        _note(tape, "unscale_", self)
        original(self, optimizer)
        _note(tape, "unscaled", self)

    return unscale_


def _stepped(tape: Tape, original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _note(tape, "scaler.step", self, optimizer=id(optimizer), arguments=len(args) + len(kwargs))
        with tape.stepping():
            return original(self, optimizer, *args, **kwargs)

    return step


def _updated(tape: Tape, original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        _note(tape, "update", self)
        original(self, *args, **kwargs)
        _note(tape, "updated", self)

    return update


PATCHES: tuple[Patch, ...] = (
    (torch.amp.GradScaler, "__init__", _made_scaler),
    (torch.amp.GradScaler, "scale", _scaled),
    (torch.amp.GradScaler, "unscale_", _unscaled),
    (torch.amp.GradScaler, "step", _stepped),
    (torch.amp.GradScaler, "update", _updated),
)
