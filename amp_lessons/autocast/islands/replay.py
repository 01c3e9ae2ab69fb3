"""Run one module again as it ran, with only its own operations in 16 bits, or all of it in fp32."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from amp_lessons.autocast.islands.calls import Call, copies
from amp_lessons.autocast.islands.errors import relative_error
from amp_lessons.autocast.islands.fp32 import autocast_off, replaced_forward, widened
from amp_lessons.precisions import HALVES

Dtypes = tuple[torch.dtype | None, ...]


def own_error(call: Call, inputs: Dtypes, outputs: Callable[[Call], Dtypes]) -> float:
    """Return the error that a module's own operations make where it is called, relative to fp32.

    The modules that it calls are not run: they return what they returned in fp32, in the dtype that they
    have under autocast, ``outputs``. What they are given is compared as well as what comes out. ``inputs``
    are the dtypes of what goes in.
    """
    errors: list[float] = []
    called: dict[nn.Module, list[Call]] = defaultdict(list)
    for child in call.children:
        called[child.module].append(child)

    def answer(calls: list[Call]) -> Callable[..., Any]:
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
        errors.append(relative_error(_run(call, inputs), call.output))
    return max(errors)


def island_error(call: Call, inputs: Dtypes) -> float:
    """Return the error of a module that runs in fp32 with all that it calls, on the same inputs."""
    args, kwargs = widened(as_dtypes(copies((call.args, call.kwargs)), inputs))
    with autocast_off([args, kwargs]):
        return relative_error(_called(call.module, args, kwargs), call.output)


def as_dtypes(value: Any, dtypes: Dtypes) -> Any:
    """Cast floating tensors of a nested value to the 16 bits that stand at their place in ``dtypes``."""
    leaves, structure = tree_flatten(value)
    if len(leaves) != len(dtypes):
        return value
    return tree_unflatten([_as(leaf, dtype) for leaf, dtype in zip(leaves, dtypes, strict=True)], structure)


def _as(leaf: Any, dtype: torch.dtype | None) -> Any:
    cast = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and dtype in HALVES.values()
    return leaf.to(dtype) if cast else leaf


def _run(call: Call, inputs: Dtypes) -> Any:
    args, kwargs = as_dtypes(copies((call.args, call.kwargs)), inputs)
    return _called(call.module, args, kwargs)


def _called(module: nn.Module, args: Any, kwargs: Any) -> Any:
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
