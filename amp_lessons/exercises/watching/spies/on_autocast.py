"""See how autocast is asked for, and let the CPU's refuse what CUDA's refuses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises.watching.spies.on_device import note_old_spelling, own_device
from amp_lessons.exercises.watching.tape import Patch, Tape


def _made_autocast(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        note_old_spelling(tape, type(self), "autocast")
        tape.autocast_devices.append(device_type)
        device = own_device(tape, device_type, "autocast")
        if device != device_type and not args and kwargs.get("dtype") is None:
            # the default belongs to the device that was asked for
            kwargs["dtype"] = torch.get_autocast_dtype("cuda")
        original(self, device, *args, **kwargs)
        if args[1] if len(args) > 1 else kwargs.get("enabled", True):
            tape.autocast_dtypes.add(self.fast_dtype)

    return __init__


def _banned_under_autocast(tape: Tape, original: Any) -> Any:
    """Refuse on the CPU what CUDA's autocast refuses, so that both give the same verdict."""

    def binary_cross_entropy(*args: Any, **kwargs: Any) -> Tensor:
        if tape.autocast_on():
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
            )
        return original(*args, **kwargs)

    return binary_cross_entropy


PATCHES: tuple[Patch, ...] = (
    (torch.amp.autocast_mode.autocast, "__init__", _made_autocast),
    (torch._C._nn, "binary_cross_entropy", _banned_under_autocast),
)
