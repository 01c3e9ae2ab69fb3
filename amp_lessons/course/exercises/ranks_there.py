"""A rank: joins the others over gloo, runs what it is to run, and stays until its judge is content."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

from amp_lessons.parallel.rank import join

_left_at: list[float] = []


def be(function: Callable[..., Any], there: str, args: list[Any]) -> dict[str, Any]:
    """Be one of the ranks; return what ``there``, "module:function", returns, given the function and more.

    ``left`` says when the rank left the others, None where it did not.
    """
    # PyTorch 2.13 gave the collectives on one tensor new names, which no earlier one has
    warnings.filterwarnings("ignore", r".torch\.distributed\.\w+_tensor. is deprecated", FutureWarning)
    join()
    module, _, name = there.partition(":")
    with mock.patch.object(dist, "reduce", _to_one_rank(dist.reduce)):
        told = getattr(importlib.import_module(module), name)(function, *args)
    return {"told": told, "left": _left_at[0] if _left_at else None}


def _to_one_rank(original: Callable[..., Any]) -> Callable[..., Any]:
    """Let a reduce leave NaN on ranks that it does not reduce to: gloo leaves a sum there, others may not."""

    def reduce(tensor: Tensor, dst: int | None = None, *args: Any, **kwargs: Any) -> Any:
        work = original(tensor, dst, *args, **kwargs)
        if work is not None:
            work.wait()
        if dist.get_rank() != kwargs.get("group_dst", dst) and tensor.is_floating_point():
            tensor.fill_(torch.nan)
        return work

    return reduce


def leave() -> None:
    """Leave the others, who would wait for this rank for ever; whatever they call next raises."""
    _left_at.append(time.monotonic())
    if dist.is_initialized():
        dist.destroy_process_group()
