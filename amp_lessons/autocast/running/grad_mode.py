"""Gradients for what looks at a training step, whatever mode its caller is in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only


@contextmanager
def gradients_on() -> Iterator[None]:
    """Let autograd record, also where ``torch.no_grad`` or ``torch.inference_mode`` is on around it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def as_in_inference_mode() -> Iterator[None]:
    """Do what inference_mode does to gradients and autocast, and let operations be watched.

    Under inference_mode itself an operation that is made of others is not taken apart where it can be seen.
    """
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)  # a weight is cast anew at each use
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        torch.set_autocast_cache_enabled(cached)


def for_autograd(value: Any) -> Any:
    """Copy those tensors of a nested value that were made under inference_mode: autograd refuses them."""
    found = (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
    return tree_map_only(torch.Tensor, _normal, value) if any(map(torch.is_inference, found)) else value


def require_normal_parameters(model: nn.Module) -> None:
    """Refuse a model that was made under inference_mode: no mode makes autograd take it.

    Raises ``ValueError`` for it.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.is_inference():
            raise ValueError(
                f"{name} was made under torch.inference_mode, so it cannot be trained; make the model outside"
            )


def _normal(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_inference():
        return tensor
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
