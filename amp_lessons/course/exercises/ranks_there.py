"""A rank: joins the others over gloo, runs what it is to run, and stays until its judge is content."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

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
    told = getattr(importlib.import_module(module), name)(function, *args)
    return {"told": told, "left": _left_at[0] if _left_at else None}


def leave() -> None:
    """Leave the others, who would wait for this rank for ever; whatever they call next raises."""
    _left_at.append(time.monotonic())
    if dist.is_initialized():
        dist.destroy_process_group()
