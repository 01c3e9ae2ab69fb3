"""Numbers that lie elsewhere: on a device, read together later where that would wait, or on other ranks.

Looking at the part of a distributed tensor that lies in this process sends nothing to other ranks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def is_free_to_read(tensor: Tensor) -> bool:
    """Whether reading a tensor's numbers makes nobody wait: whether they lie on the CPU."""
    return tensor.device.type == "cpu"


def is_batched(tensor: Any) -> bool:
    """Whether a tensor stands for many, as inside ``vmap``: then it has no numbers that could be read."""
    wrapped = torch._C._functorch
    return isinstance(tensor, Tensor) and (
        wrapped.is_legacy_batchedtensor(tensor) or wrapped.is_functorch_wrapped_tensor(tensor)
    )


class Later:
    """One number, kept on its device until somebody asks for it; on the CPU it is read at once."""

    def __init__(self, number: Tensor | float | None) -> None:
        self._number: Any = number
        if isinstance(number, Tensor):
            if is_distributed(number):
                number = _whole(number)
            alone = number.detach()
            self._number = float(alone.sum()) if is_free_to_read(alone) else alone.sum().clone()

    @property
    def known(self) -> bool:
        """Whether reading it makes nobody wait."""
        return not isinstance(self._number, Tensor)

    def read(self) -> float | None:
        """Return the number, waiting for the device where that has not been done."""
        if isinstance(self._number, Tensor):
            self._number = float(self._number)
        return self._number

    def at_once(self) -> float | None:
        """Return the number where reading it makes nobody wait, else None."""
        return self.read() if self.known else None


class Sum(Later):
    """The sum of several numbers, each where it lies; None where one of them is not known."""

    def __init__(self, parts: Iterable[Later]) -> None:
        self._parts = tuple(parts)

    @property
    def known(self) -> bool:
        """Whether reading it makes nobody wait."""
        return all(part.known for part in self._parts)

    def read(self) -> float | None:
        """Return the sum, waiting for the device where that has not been done."""
        numbers = [part.read() for part in self._parts]
        return None if None in numbers else sum(numbers)  # type: ignore[arg-type]


def _whole(number: Any) -> Tensor:
    """Return what a rank holds of a distributed number if that is all of it, else NaN: asking would send."""
    if all(placement.is_replicate() for placement in number.placements):
        return number.to_local()
    return torch.tensor(math.nan)


def scale_of(scaler: torch.amp.GradScaler) -> Later:
    """Return a scaler's scale: 1 where it is disabled, its first one before it has scaled anything."""
    if not scaler.is_enabled():
        return Later(1.0)
    return Later(scaler._scale if scaler._scale is not None else float(scaler._init_scale))


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor is a ``DTensor``, on which any operation may be a collective of all ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # nobody has one where it was not imported
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a distributed tensor, without its history; any other tensor as it is."""
    return tensor.detach().to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
