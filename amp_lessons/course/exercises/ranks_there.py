"""A rank: joins the others over gloo, runs what it is to run, and stays until its judge is content."""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
_FOR_EVER = timedelta(days=1)  # the judge's limit comes first
_store: list[dist.TCPStore] = []
_left_at: list[float] = []


def open_store() -> int:
    """Open the place where ranks find each other; return its port."""
    _store.append(dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False))
    return _store[0].port


def be(
    function: Callable[..., Any], rank: int, ranks: int, port: int, there: str, args: list[Any]
) -> dict[str, Any]:
    """Be one of the ranks; return what ``there``, "module:function", returns, given the function and more.

    ``left`` says when the rank left the others, None where it did not.
    """
    os.environ.update(
        RANK=f"{rank}", LOCAL_RANK=f"{rank}", WORLD_SIZE=f"{ranks}", LOCAL_WORLD_SIZE=f"{ranks}"
    )
    # PyTorch 2.13 gave the collectives on one tensor new names, which no earlier one has
    warnings.filterwarnings("ignore", r".torch\.distributed\.\w+_tensor. is deprecated", FutureWarning)
    os.environ["GLOO_SOCKET_IFNAME"] = _LOOPBACK  # no name server, no firewall in the way
    store = _store[0] if _store else dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=_FOR_EVER)
    store.set(f"joined{rank}", "")
    store.wait([f"joined{each}" for each in range(ranks)])  # who left earlier would keep others from joining
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
