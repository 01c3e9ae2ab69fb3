"""What an attribute keeps alive, wherever it has put it: in a list, in a module, behind a function."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor

_DEEPEST = 12  # a module within a module: four steps down


def kept_in_fp32(value: Any, apart_from: Iterable[Tensor] = ()) -> int:
    """Return how many fp32 numbers ``value`` keeps in memory, each once; a view keeps what it is a view of.

    Those of ``apart_from`` do not count: somebody else keeps them anyway.
    """
    theirs = {tensor.untyped_storage().data_ptr() for tensor in apart_from}
    storages = {
        storage.data_ptr(): storage.nbytes() // torch.float32.itemsize
        for tensor in _tensors(value, _DEEPEST, set())
        if tensor.dtype == torch.float32
        for storage in (tensor.untyped_storage(),)
    }
    return sum(elements for pointer, elements in storages.items() if pointer not in theirs)


def _tensors(value: Any, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
        return
    for member in _members(value):
        yield from _tensors(member, depth - 1, seen)


def _members(value: Any) -> Iterator[Any]:
    """Yield what an object of Python's refers to, but not the modules and classes that it comes from."""
    if isinstance(value, (type, ModuleType)):
        return
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, (FunctionType, MethodType)):
        yield from inspect.getclosurevars(value).nonlocals.values()
        yield from (value.__self__,) if isinstance(value, MethodType) else (value.__defaults__,)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    else:
        yield getattr(value, "__dict__", None)
