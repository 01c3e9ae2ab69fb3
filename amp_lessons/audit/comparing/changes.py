"""Change a run on purpose: nudge every number that passes, or force a precision on it.

Nudging measures what a format explains, instead of guessing it: the first run is made once more, and all that
its modules take and return is multiplied by ``1 + eps·ξ``, with ``ξ`` drawn between -1 and 1 and ``eps`` of
the coarser of the two runs' formats. That is about twice what rounding does. It is the idea of stochastic
arithmetic, as CADNA and Verificarlo have it (Vignes, 1993; Denis, de Oliveira Castro and Petit, 2016).
"""

from __future__ import annotations

import math
import random
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils import _pytree

from amp_lessons.audit.comparing.pairing import shared_formats
from amp_lessons.audit.comparing.recording import Recording, coarsest, name_of, unit_roundoff
from amp_lessons.audit.recorder.later import is_batched, is_distributed
from amp_lessons.precisions import HALF_DTYPES, precision

_NOISE = 2**20  # numbers that are drawn once; each tensor begins at another of them
_SEED = 20261125


class Nudge:
    """Nudges by the ``formats`` of the calls of each step, in their order; without one, by a tensor's own."""

    def __init__(self, formats: Mapping[int, Sequence[str]]) -> None:
        self._formats = formats
        self._drawn = random.Random(_SEED)
        self._moved: dict[int, tuple[weakref.ref[Tensor], float]] = {}  # nudged tensors, and by how much

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
        plain = tensor.layout == torch.strided and not is_batched(tensor) and not is_distributed(tensor)
        if not (plain and tensor.is_floating_point() and tensor.itemsize > 1 and tensor.numel() > 0):
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


@cache
def _factors(device: str, dtype: torch.dtype, eps: float) -> Tensor:
    """Return all factors twice in a row, so that most tensors take theirs without a copy."""
    drawn = torch.Generator("cpu").manual_seed(_SEED)
    noise = torch.empty(_NOISE, dtype=torch.float32, device="cpu").uniform_(-1.0, 1.0, generator=drawn)
    return noise.to(device, dtype).mul_(eps).add_(1.0).repeat(2)


class _Forced:
    """Enters autocast where the outermost module begins, and leaves it where that ends."""

    def __init__(self, dtype: torch.dtype | None) -> None:
        self._dtype = dtype
        self._here = threading.local()

    def before(self, module: nn.Module, args: Any) -> None:
        """Enter autocast before the outermost module; the backward pass repeats what was entered then."""
        if torch.compiler.is_compiling() or getattr(self._here, "outermost", None) is not None:
            return
        if torch._C._current_graph_task_id() == -1:
            tensors = [each for each in _pytree.tree_leaves(args) if isinstance(each, Tensor)]
            device = next((each.device.type for each in [*module.parameters(), *tensors]), "cpu")
            on = self._dtype is not None
            self._here.outermost = module
            self._here.entered = torch.autocast(device, dtype=self._dtype or torch.bfloat16, enabled=on)
            self._here.entered.__enter__()

    def after(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Leave it, and return what was computed in 16 bits as fp32, in which losses are computed."""
        if torch.compiler.is_compiling() or getattr(self._here, "outermost", None) is not module:
            return None
        self._here.entered.__exit__(None, None, None)
        self._here.outermost = None
        if self._dtype is None:
            return None
        return _pytree.tree_map_only(Tensor, lambda t: t.float() if t.dtype in HALF_DTYPES else t, output)


@contextmanager
def forced(name: str) -> Iterator[None]:
    """Run each outermost module inside under autocast in fp16 or bf16, or, for "fp32", with autocast off.

    What the script itself says around its model does not count then; what the model says inside does. Raises
    ValueError for another name.
    """
    forces = _Forced(precision(name).autocast_dtype)
    before = register_module_forward_pre_hook(forces.before)
    after = register_module_forward_hook(forces.after, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()
