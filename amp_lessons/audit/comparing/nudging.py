"""Nudge a run: change every number that passes by as much as rounding may, to see what becomes of it.

This measures what a format explains, instead of guessing it: the first run is made once more, and all that
its modules take and return is multiplied by ``1 + eps·ξ``, with ``ξ`` drawn between -1 and 1 and ``eps`` of
the coarser of the two runs' formats. That is about twice what rounding does. It is the idea of stochastic
arithmetic, as CADNA and Verificarlo have it (Vignes, 1993; Denis, de Oliveira Castro and Petit, 2016).
"""

from __future__ import annotations

import math
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

_NOISE = 2**20  # numbers that are drawn once; each tensor begins at another of them
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
        factors = self._taken(tensor, eps)
        nudged = _Moved.apply(tensor, factors)
        self._moved[id(nudged)] = weakref.ref(nudged), eps
        return nudged

    def _taken(self, tensor: Tensor, eps: float) -> Tensor:
        """Take factors near 1 that were drawn apart from PyTorch's own numbers, in a tensor's shape."""
        exact = torch.promote_types(tensor.dtype, torch.float32)
        count, begin = tensor.numel(), self._drawn.randrange(_NOISE)
        factors = _factors(str(tensor.device), exact, eps)
        times = (begin + count - 1) // factors.numel() + 1
        return (factors.repeat(times) if times > 1 else factors)[begin : begin + count].view(tensor.shape)


class _Moved(torch.autograd.Function):
    """A tensor times factors near 1, within its own range, and its gradient times the same factors."""

    @staticmethod
    def forward(tensor: Tensor, factors: Tensor) -> Tensor:
        """Multiply: a probability must not grow beyond 1, nor the largest number to inf."""
        here = tensor.to(factors.dtype)
        least, most = torch.aminmax(here)
        if tensor.device.type == "cpu" and math.isfinite(float(least) + float(most)):
            return _times(here, factors, tensor).clamp_(float(least), float(most)).to(tensor.dtype)
        least, most = least.nan_to_num(-torch.inf, neginf=-torch.inf), most.nan_to_num(torch.inf, torch.inf)
        moved = here * factors
        return moved.where(moved.isfinite(), here).clamp_(least, most).to(tensor.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep the factors."""
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Multiply by the same, in a way that can be differentiated again."""
        (factors,) = ctx.saved_tensors
        return _times(gradient.to(factors.dtype), factors, gradient).to(gradient.dtype), None


def _times(here: Tensor, factors: Tensor, original: Tensor) -> Tensor:
    """Multiply ``here``, in place where it is a copy of the ``original``: new memory takes time as well."""
    return here * factors if here is original else here.mul_(factors)


def _can_be_nudged(tensor: Tensor) -> bool:
    plain = tensor.layout == torch.strided and not is_batched(tensor) and not is_distributed(tensor)
    return plain and tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() > 0


@cache
def _factors(device: str, dtype: torch.dtype, eps: float) -> Tensor:
    """Return all factors twice in a row, so that most tensors take theirs without a copy."""
    drawn = torch.Generator("cpu").manual_seed(_SEED)
    noise = (
        torch.empty(_NOISE, dtype=torch.float32, device="cpu")
        .uniform_(-1.0, 1.0, generator=drawn)
        .to(device, dtype)
    )
    return noise.mul_(eps).add_(1.0).repeat(2)
