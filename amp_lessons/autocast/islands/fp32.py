"""Run some modules of a model in fp32, in the middle of autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from amp_lessons._base.arguments import require_items
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import require_module
from amp_lessons.precisions import HALF_DTYPES


@contextmanager
def in_fp32(model: nn.Module, names: Iterable[str]) -> Iterator[None]:
    """Make islands of the modules with these ``names`` (paths, as in ``named_modules``) within this block.

    In an island autocast is off, and what comes in in 16 bits is cast to fp32. It is what a forward of their
    own would do::

        with torch.autocast(x.device.type, enabled=False):
            x = self.module(x.float())

    Raises ``ValueError`` for a name that no module of ``model`` has.
    """
    require_module(model)
    modules = dict(model.named_modules())
    chosen = require_items(names, str, "names", 'a path such as "encoder.layer.0"')
    if unknown := [name for name in chosen if name not in modules]:
        raise ValueError(f"no module of this model is called {unknown[0]!r}")
    with ExitStack() as stack:
        for module in dict.fromkeys(modules[name] for name in chosen):
            stack.enter_context(replaced_forward(module, _island_of(module)))
        yield


@contextmanager
def replaced_forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Give one module another forward within this block; its hooks stay."""
    with patch.dict(vars(module), {"forward": forward}):
        yield


def widen(value: Any) -> Any:
    """Cast the 16-bit tensors of a nested value to fp32."""
    return tree_map_only(torch.Tensor, lambda t: t.float() if t.dtype in HALF_DTYPES else t, value)


def autocast_off(value: Any) -> torch.autocast:
    """Return a region without autocast, for the device of the first tensor in a nested value."""
    first = next(tensors_in(value), None)
    return torch.autocast("cpu" if first is None else first.device.type, enabled=False)


def _island_of(module: nn.Module) -> Callable[..., Any]:
    """Return a forward for one module: a method where it has one, so that a copy of it computes by itself."""
    forward = module.forward
    if isinstance(forward, MethodType) and forward.__self__ is module:
        return MethodType(_island(forward.__func__), module)
    return _island(forward)


def _island(forward: Callable[..., Any]) -> Callable[..., Any]:
    def in_island(*args: Any, **kwargs: Any) -> Any:
        with autocast_off([args, kwargs]):
            return forward(*widen(args), **widen(kwargs))

    return in_island
