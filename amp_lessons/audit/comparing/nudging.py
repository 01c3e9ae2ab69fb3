"""Nudge a run: change every number that passes by as much as rounding may, to see what becomes of it.

This measures what a format explains, instead of guessing it: the first run is made once more, and all that
its modules take and return is multiplied by ``1 + eps·ξ``, with ``ξ`` drawn between -1 and 1 and ``eps`` of
the coarser of the two runs' formats. That is about twice what rounding does. It is the idea of stochastic
arithmetic, as CADNA and Verificarlo have it (Vignes, 1993; Denis, de Oliveira Castro and Petit, 2016).
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from amp_lessons.audit.comparing.formats import coarsest, name_of, unit_roundoff
from amp_lessons.audit.comparing.pairing import shared_formats
from amp_lessons.audit.comparing.recording import Recording
from amp_lessons.audit.recorder.later import is_batched, is_distributed

_NOISE = 2**18  # numbers that are drawn once; each tensor begins at another of them
_SEED = 20261125


class Nudge:
    """Nudges by the ``formats`` of the calls of each step, in their order; without one, by a tensor's own."""

    def __init__(self, formats: Mapping[int, Sequence[str]]) -> None:
        self._formats = formats
        self._drawn = random.Random(_SEED)
        self._moved: dict[
            int, tuple[weakref.ref[Tensor], float]
        ] = {}  # tensors that were nudged, by how much

    @classmethod
    def between(cls, a: Recording, b: Recording) -> Nudge:
        """Return the nudge of the run ``a`` by the coarser of its formats and those of ``b``."""
        return cls(shared_formats(a, b))

    def nudged(self, nest: Any, step: int, place: int) -> Any:
        """Return what a module takes or returns with every floating tensor in it nudged, history and all."""
        formats = self._formats.get(step, ())
        of_call = formats[place] if place < len(formats) else ""
        return _pytree.tree_map_only(Tensor, partial(self._nudged, of_call), nest)

    def _nudged(self, of_call: str, tensor: Tensor) -> Tensor:
        if not _can_be_nudged(tensor):
            return tensor
        eps = 2 * unit_roundoff(coarsest([of_call, name_of(tensor.dtype)]))
        before = self._moved.get(id(tensor))
        if before is not None and before[0]() is tensor and before[1] >= eps:
            return tensor  # the module inside of this one, or before it, has returned it so
        exact = torch.promote_types(tensor.dtype, torch.float32)
        with torch.no_grad():
            here = tensor.to(exact)
            factors = self._noise(tensor).to(exact).mul(eps).add_(1.0)
            # a probability must not grow beyond 1, nor the largest number to inf
            moved = here * factors
            factors.masked_fill_(moved != moved.clamp(*torch.aminmax(here)), 1.0)
        nudged = (tensor.to(exact) * factors).to(tensor.dtype)
        self._moved[id(nudged)] = weakref.ref(nudged), eps
        return nudged

    def _noise(self, tensor: Tensor) -> Tensor:
        """Take numbers between -1 and 1 that were drawn apart from PyTorch's own, in a tensor's shape."""
        count, begin = tensor.numel(), self._drawn.randrange(_NOISE)
        noise = _noise(str(tensor.device))
        times = (begin + count) // _NOISE + 1
        return (noise.repeat(times) if times > 1 else noise)[begin : begin + count].view(tensor.shape)


def _can_be_nudged(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and not is_batched(tensor) and not is_distributed(tensor)
    return plain and tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() > 0


@cache
def _noise(device: str) -> Tensor:
    drawn = torch.Generator().manual_seed(_SEED)
    return torch.empty(_NOISE).uniform_(-1.0, 1.0, generator=drawn).to(device)
