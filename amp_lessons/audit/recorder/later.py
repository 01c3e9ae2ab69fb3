"""Numbers that lie elsewhere: on a device, read together later where that would wait, or on other ranks.

While a step is looked at closely a device may be waited for; the watch, of which there is one at a time, says
so by ``look_closely``. Looking at the part of a distributed tensor that lies in this process sends nothing to
other ranks.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_closely = False


def look_closely(yes: bool) -> None:
    """Say whether the step that begins is one to look at closely: then a device may be waited for."""
    global _closely
    _closely = yes


def looks_closely() -> bool:
    """Whether this step is one to look at closely."""
    return _closely


def lies_here(tensor: Tensor) -> bool:
    """Whether reading a tensor's numbers makes nobody wait: whether they lie on the CPU."""
    return tensor.device.type == "cpu"


def may_read(tensor: Tensor) -> bool:
    """Whether a tensor's numbers may be read now: they lie on the CPU, or this step is one to wait in."""
    return lies_here(tensor) or (_closely and tensor.device.type != "meta" and not is_captured())


def is_captured() -> bool:
    """Whether what is called goes into a CUDA graph: nothing runs yet, so nothing can be read."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def is_batched(tensor: Any) -> bool:
    """Whether a tensor stands for many, as inside ``vmap``: then it has no numbers that could be read."""
    wrapped = torch._C._functorch
    return isinstance(tensor, Tensor) and (
        wrapped.is_legacy_batchedtensor(tensor) or wrapped.is_functorch_wrapped_tensor(tensor)
    )


class Later:
    """One number, kept on its device until somebody asks for it; on the CPU it is read at once.

    While a CUDA graph is captured there is none: it would be a number of whenever the graph runs.
    """

    def __init__(self, number: Tensor | float | None) -> None:
        self._number: Any = number
        if isinstance(number, Tensor) and is_captured():
            self._number = None
        elif isinstance(number, Tensor):
            if is_distributed(number):  # all of it, or NaN: asking for the rest would send something
                placements: Any = number.placements  # type: ignore[attr-defined]
                held = all(each.is_replicate() for each in placements)
                number = local(number) if held else torch.tensor(math.nan)
            alone = number.detach()
            self._number = float(alone.sum()) if lies_here(alone) else alone.sum().clone()

    @property
    def known(self) -> bool:
        """Whether reading it makes nobody wait."""
        return not isinstance(self._number, Tensor)

    def read(self) -> float | None:
        """Return the number, waiting for the device where that has not been done and can be."""
        if isinstance(self._number, Tensor):
            if is_captured():
                return None
            self._number = float(self._number)
        return self._number

    def at_once(self) -> float | None:
        """Return the number where it may be read now, else None."""
        return self.read() if self.known or _closely else None

    def unread(self) -> Iterator[Later]:
        """Yield the numbers that are still to be read from their device."""
        if isinstance(self._number, Tensor):
            yield self


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

    def unread(self) -> Iterator[Later]:
        """Yield the parts that are still to be read from their device."""
        for part in self._parts:
            yield from part.unread()


def read_together(numbers: Iterable[Later]) -> None:
    """Read numbers from their device with one wait for all of a kind; there they take memory."""
    if is_captured():
        return
    alike: dict[tuple[torch.device, torch.dtype], dict[int, Later]] = {}
    for each in (one for number in numbers for one in number.unread()):
        alike.setdefault((each._number.device, each._number.dtype), {})[id(each)] = each
    for found in alike.values():
        values = torch.stack([each._number for each in found.values()]).tolist()
        for each, value in zip(found.values(), values, strict=True):
            each._number = value


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


Place = tuple[int, int]


def place_of(tensor: Any) -> Place | None:
    """Return where a tensor's numbers lie: their storage, and where in it; compare it while both live.

    None where that identifies nothing: a fake tensor, a wrapper around others and one without memory.
    """
    if not isinstance(tensor, Tensor) or is_batched(tensor):
        return None
    tensor = local(tensor)
    plain = type(tensor).__torch_dispatch__ == Tensor.__torch_dispatch__ and tensor.layout == torch.strided
    if not plain or not tensor.untyped_storage().nbytes() or tensor.device.type == "meta":
        return None
    return tensor.untyped_storage()._cdata, tensor.storage_offset()


@dataclass(frozen=True)
class Lasting:
    """The place of a tensor beyond its life: no other one is taken for it that was given the same memory."""

    place: Place
    storage: StorageWeakRef  # as long as it is kept PyTorch gives no other storage this name

    @classmethod
    def of(cls, tensor: Any) -> Lasting | None:
        """Return the place of a tensor, None of one that has none."""
        place = place_of(tensor)
        return None if place is None else cls(place, StorageWeakRef(local(tensor).untyped_storage()))

    def is_of(self, tensor: Any) -> bool:
        """Whether a tensor lies there."""
        return not self.storage.expired() and self.place == place_of(tensor)
