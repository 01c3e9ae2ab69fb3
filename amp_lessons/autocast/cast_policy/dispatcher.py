"""Small vocabulary shared by everything here that talks to PyTorch's dispatcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import torch

AUTOCAST_KEYS = {"cuda": "AutocastCUDA", "cpu": "AutocastCPU", "mps": "AutocastMPS", "xpu": "AutocastXPU"}


class UnreadablePyTorchError(RuntimeError):
    """PyTorch did not answer the way the course knows how to ask; no table is better than a wrong one."""


def autocast_key(device_type: str) -> torch._C.DispatchKey:
    """Return the dispatch key under which PyTorch keeps the autocast kernels of one device type."""
    if device_type not in AUTOCAST_KEYS:
        raise ValueError(f"unknown device type {device_type!r}; choose one of {', '.join(AUTOCAST_KEYS)}")
    return torch._C._dispatch_key_parse(AUTOCAST_KEYS[device_type])


@cache
def overload(name: str) -> torch._ops.OpOverload:
    """Return the callable behind a dispatcher name such as ``"aten::sum.dim_IntList"`` or ``"aten::sum"``."""
    namespace, _, rest = name.partition("::")
    base, _, variant = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), variant or "default")


@cache
def is_composite(name: str) -> bool:
    """Say whether the operation is written in terms of others, so that those meet autocast one by one."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def without_overload(name: str) -> str:
    """Return a dispatcher name without its overload: ``"aten::sum"`` of ``"aten::sum.dim_IntList"``."""
    return name.partition(".")[0]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested sequences, mappings and dataclasses, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Apply ``change`` to an argument that is a tensor, or a list or tuple of tensors; leave all else."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(change, item) for item in value)
    return value
