"""Run one module again as it ran, with only its own operations in 16 bits, or all of it in fp32."""

from __future__ import annotations

import math
import random
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from amp_lessons.autocast.islands.fp32 import autocast_off, replaced_forward, widen
from amp_lessons.autocast.running import AlikeDropout
from amp_lessons.precisions import HALF_DTYPES

Dtypes = tuple[torch.dtype | None, ...]


def own_error(call: ModuleCall, inputs: Dtypes, outputs: Callable[[ModuleCall], Dtypes]) -> float:
    """Return the error that a module's own operations make where it is called, relative to fp32.

    The modules that it calls are not run: they return what they returned in fp32, in the dtype that they
    have under autocast, ``outputs``. What they are given is compared as well as what comes out. ``inputs``
    are the dtypes of what goes in.
    """
    errors: list[float] = []
    called: dict[nn.Module, list[ModuleCall]] = defaultdict(list)
    for child in call.children:
        called[child.module].append(child)

    def answer(calls: list[ModuleCall]) -> Callable[..., Any]:
        remaining = iter(calls)

        def forward(*args: Any, **kwargs: Any) -> Any:
            child = next(remaining)
            errors.append(relative_error((args, kwargs), (child.args, child.kwargs)))
            return as_dtypes(copies(child.output), outputs(child))

        return forward

    with ExitStack() as stack:
        for module, calls in called.items():
            stack.enter_context(replaced_forward(module, answer(calls)))
            stack.enter_context(_replaced_hooks(module, "_forward_hooks", {}))  # the answer went through them
        args, kwargs = as_dtypes(copies((call.args, call.kwargs)), inputs)
        errors.append(relative_error(_call_module(call.module, args, kwargs), call.output))
    return max(errors)


def island_error(call: ModuleCall, inputs: Dtypes) -> float:
    """Return the error of a module that runs in fp32 with all that it calls, on the same inputs."""
    args, kwargs = widen(as_dtypes(copies((call.args, call.kwargs)), inputs))
    with autocast_off([args, kwargs]):
        return relative_error(_call_module(call.module, args, kwargs), call.output)


def as_dtypes(value: Any, dtypes: Dtypes) -> Any:
    """Cast floating tensors of a nested value to the 16 bits that stand at their place in ``dtypes``."""
    leaves, structure = tree_flatten(value)
    if len(leaves) != len(dtypes):
        return value
    return tree_unflatten([_as(leaf, dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)], structure)


def _as(leaf: Any, dtype: torch.dtype | None) -> Any:
    cast = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and dtype in HALF_DTYPES
    return leaf.to(dtype) if cast else leaf


def _call_module(module: nn.Module, args: Any, kwargs: Any) -> Any:
    """Call a module on what its pre-hooks made of its inputs already: they run, for what else they do."""
    hooks = {key: _without_answer(hook) for key, hook in module._forward_pre_hooks.items()}
    with _replaced_hooks(module, "_forward_pre_hooks", hooks):
        return module(*args, **kwargs)


def _without_answer(hook: Callable[..., Any]) -> Callable[..., None]:
    def silent(*args: Any) -> None:
        hook(*args)

    return silent


@contextmanager
def _replaced_hooks(module: nn.Module, kind: str, hooks: dict[int, Callable[..., Any]]) -> Iterator[None]:
    with patch.dict(vars(module), {kind: OrderedDict(hooks)}):
        yield


# --- a pass through a model, written down call by call, so that each module can be run again by itself


@dataclass(eq=False)
class ModuleCall:
    """One call of one module: what went in, what came out, and the calls that it made in turn, in order."""

    path: str
    module: nn.Module
    args: Any
    kwargs: Any
    output: Any = None
    children: list[ModuleCall] = field(default_factory=list)

    def below(self) -> Iterator[ModuleCall]:
        """Yield all calls that were made within this one, and then itself."""
        for child in self.children:
            yield from child.below()
        yield self

    @property
    def dtypes(self) -> tuple[tuple[torch.dtype | None, ...], tuple[torch.dtype | None, ...]]:
        """The dtypes of what went in and of what came out, None for what is no tensor."""
        return _dtypes((self.args, self.kwargs)), _dtypes(self.output)


class ModuleCallLog:
    """Writes down the calls of a model's modules within ``following``; values are copied if asked for.

    Without copies, only tensors' dtypes are to be read: their values may have been overwritten since.
    """

    def __init__(self, *, copied: bool) -> None:
        self._keep = copies if copied else _without_memory
        self._open: list[ModuleCall] = []
        self.roots: list[ModuleCall] = []

    @contextmanager
    def following(self, model: nn.Module) -> Iterator[None]:
        """Follow the modules of ``model``; of those that appear in several places, the first path counts."""
        with ExitStack() as stack:
            for path, module in model.named_modules():
                if not isinstance(module, torch.jit.ScriptModule):
                    stack.callback(self._entering(path, module).remove)
                    stack.callback(self._leaving(module).remove)
            yield

    def _entering(self, path: str, module: nn.Module) -> Any:
        def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
            call = ModuleCall(path, module, self._keep(args), self._keep(kwargs))
            (self._open[-1].children if self._open else self.roots).append(call)
            self._open.append(call)

        return module.register_forward_pre_hook(enter, with_kwargs=True)

    def _leaving(self, module: nn.Module) -> Any:
        def leave(_: nn.Module, args: Any, output: Any) -> None:
            self._open.pop().output = self._keep(output)

        return module.register_forward_hook(leave, always_call=True)


def copies(value: Any) -> Any:
    """Copy the tensors of a nested value."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), value)


def _without_memory(value: Any) -> Any:
    """Keep the dtypes of a nested value's tensors, and none of their memory."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.new_empty(0), value)


def _dtypes(value: Any) -> tuple[torch.dtype | None, ...]:
    return tuple(leaf.dtype if isinstance(leaf, torch.Tensor) else None for leaf in tree_flatten(value)[0])


# --- passes that draw the same random numbers, whatever their dtype, so that they can be compared


@contextmanager
def same_draws() -> Iterator[None]:
    """Start from the random numbers that the next such block starts from, and drop nothing out.

    What a layer leaves out at random is left out alike; the masks of dropout are not the same in every dtype.
    """
    before = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), AlikeDropout(none=True):
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


# --- how far what was computed in 16 bits is from the same in fp32

_MASKED = 1e30  # beyond it a number stands for infinity: what masks add to scores that are not to count
_NOTHING = 1e-6  # a root mean square below it is as good as 0


def relative_error(given: Any, right: Any) -> float:
    """Return the largest error of the floating tensors in ``given``, relative to the norm of the right one.

    It is inf where a number is not finite that is finite in ``right``, and where the two are of other shapes.
    """
    return max(map(_error, _floating(given), _floating(right)), default=0.0)


def largest_magnitude(value: Any) -> float:
    """Return the largest finite magnitude of the floating tensors in a nested value, 0 without any."""
    magnitudes = [tensor.abs() for tensor in _floating(value)]
    counting = [each[each < _MASKED] for each in magnitudes]
    return max((float(each.max()) for each in counting if each.numel()), default=0.0)


def _floating(value: Any) -> list[torch.Tensor]:
    leaves = tree_leaves(value)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]


def _error(given: torch.Tensor, right: torch.Tensor) -> float:
    if given.shape != right.shape:
        return math.inf
    given, right = _counting(given, right)
    if not right.numel():
        return 0.0
    wide = torch.promote_types(right.dtype, torch.float32)
    difference = _norm(given.to(wide) - right.to(wide))
    if not math.isfinite(difference):
        return math.inf
    return difference / max(_norm(right), _NOTHING * math.sqrt(right.numel()))


def _norm(values: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))  # squares of fp32 fit nothing less


def _counting(given: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values that count: where the right ones are finite, and no mask's stand-in for infinity."""
    counting = right.abs() < _MASKED
    return (given, right) if bool(counting.all()) else (given[counting], right[counting])
