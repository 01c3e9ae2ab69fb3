"""A model on any device becomes a fake one on the CPU, where CUDA's rules can be had without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from amp_lessons.autocast import fake_copy
from amp_lessons.autocast.running.fakes import fake_mode_of, made_fake


def on_fake_cpu(model: nn.Module, inputs: Any) -> tuple[nn.Module, Any]:
    """Return ``model`` and its (nested) ``inputs`` on fake CPU tensors; a fake CPU model is not copied."""
    require_module(model)
    mode = fake_mode_of(_tensors(model))
    if mode is None:
        model = fake_copy(model)
        mode = fake_mode_of(_tensors(model)) or FakeTensorMode()
    with mode:
        if any(tensor.device.type != "cpu" for tensor in _tensors(model)):
            _move(model)
        return model, tree_map_only(torch.Tensor, _like_on_cpu, made_fake(inputs, mode))


@contextmanager
def without_collecting() -> Iterator[None]:
    """Keep Python's garbage collector out of a block that makes many short-lived objects, and few cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def require_module(model: Any) -> None:
    """Raise TypeError for anything that is no module."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return list(chain(model.parameters(), model.buffers()))


def _move(model: nn.Module) -> None:
    """Replace every parameter and buffer by its like on the CPU; what was shared stays shared."""
    moved: dict[int, torch.Tensor] = {}
    for module in model.modules():
        stores: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for store in stores:
            for name, tensor in store.items():
                if tensor is not None:
                    store[name] = moved.setdefault(id(tensor), _like_on_cpu(tensor))


def _like_on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor
    like = torch.empty_like(tensor, device="cpu")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(like, requires_grad=tensor.requires_grad)
    return like.requires_grad_(tensor.requires_grad)
