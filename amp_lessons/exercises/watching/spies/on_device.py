"""Let "cuda" mean the device there is: PyTorch would otherwise refuse, or switch mixed precision off."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.exercises.watching.tape import Patch, Tape


def own_device(tape: Tape, device: Any, spelling: str) -> Any:
    """Return the device to use where the learner asked for ``device``."""
    if tape.device_type != "cuda" and _is_cuda(device):
        tape.hard_coded.add(spelling)
        return tape.device_type
    return device


def note_old_spelling(tape: Tape, made: type, name: str) -> None:
    """Remark on ``torch.cuda.amp`` and ``torch.cpu.amp``, whose classes name their device."""
    if made.__module__.startswith(("torch.cuda.", "torch.cpu.")):
        tape.deprecated.add(f"{made.__module__.rsplit('.', 1)[0]}.{name}")


def _is_cuda(device: Any) -> bool:
    return (isinstance(device, str) and device.startswith("cuda")) or (
        isinstance(device, torch.device) and device.type == "cuda"
    )


def _moved(tape: Tape, original: Any) -> Any:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(own_device(tape, argument, "to") for argument in args)
        kwargs = {name: own_device(tape, argument, "to") for name, argument in kwargs.items()}
        return original(self, *args, **kwargs)

    return to


def _moved_to_cuda(tape: Tape, original: Any) -> Any:
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape.hard_coded.add("cuda")
        return self

    return cuda


def patches(tape: Tape) -> list[Patch]:
    """List what to replace where there is no GPU, and nothing where there is one."""
    if tape.device_type == "cuda":
        return []
    spies = (("to", _moved), ("cuda", _moved_to_cuda))
    return [(owner, name, spy) for name, spy in spies for owner in (Tensor, nn.Module)]
