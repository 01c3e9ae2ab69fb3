"""Models without memory: tensors that have a shape, a dtype and a device, but no data."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_map_only


def fake_tensors() -> FakeTensorMode:
    """Context manager in which every new tensor is fake, so that a model of any size is built in no memory.

    Build the model and its inputs in the same block::

        with autocast.fake_tensors():
            model, tokens = GPT2LMHeadModel(config), torch.zeros(1, 1024, dtype=torch.long)
        ledger = autocast.record(model, tokens)
    """
    return FakeTensorMode()


def fake_copy(model: nn.Module) -> nn.Module:
    """Copy a model without its memory: shapes, dtypes and shared weights, but no values."""
    with FakeCopyMode(FakeTensorMode()):
        return copy.deepcopy(model)


def fake_mode_of(tensors: Iterable[torch.Tensor]) -> FakeTensorMode | None:
    """The block in which fake tensors were made, None if all are real.

    Raises ``ValueError`` for fake tensors from several blocks, which cannot meet in one operation.
    """
    modes = {id(tensor.fake_mode): tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)}
    if len(modes) > 1:
        raise ValueError(
            "these fake tensors come from different blocks; make model and inputs in the same one"
        )
    return next(iter(modes.values()), None)


def made_fake(value: Any, mode: FakeTensorMode) -> Any:
    """Replace the real tensors of (nested) inputs by fake ones of the same block as the model's."""
    return tree_map_only(
        torch.Tensor, lambda t: t if isinstance(t, FakeTensor) else mode.from_tensor(t), value
    )
