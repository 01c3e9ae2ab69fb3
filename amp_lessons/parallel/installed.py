"""Behaviour of the installed PyTorch where versions differ: asked of it, not known."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from amp_lessons.parallel.running import run
from amp_lessons.parallel.traffic import communication

_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class GlooFacts:
    """Results of gloo on two processes: rank r gave 2 + 4·r, so the sum is 8 and the mean is 4.

    ``averages`` is what came of a mean, by who was asked for it, None where it was refused: the collectives
    with ReduceOp.AVG, and the gradient of ``fully_shard``. ``reduces`` says of each 16-bit dtype whether a
    sum of it is right.
    """

    torch_version: str
    averages: dict[str, float | None]
    reduces: dict[torch.dtype, bool]

    @property
    def sums_where_it_should_average(self) -> bool:
        """Whether anybody's mean was a sum, as in https://github.com/pytorch/pytorch/issues/162338."""
        return 8.0 in self.averages.values()


@dataclass(frozen=True)
class DefaultReduceDtype:
    """The dtype in which ``MixedPrecisionPolicy(param_dtype, reduce_dtype=None)`` reduces gradients.

    ``seen`` is the dtype of the reduce-scatter that FSDP2 called, by ``param_dtype``; ``documented`` what the
    installed docstring says, in one line, "" where it says nothing.
    """

    torch_version: str
    seen: dict[torch.dtype | None, torch.dtype]
    documented: str


@cache
def gloo_facts() -> GlooFacts:
    """Ask the installed gloo, on two processes: what it averages, and which dtypes it reduces."""
    (facts, _) = run(_ask_gloo, 2)
    return facts


def _ask_gloo() -> GlooFacts:
    ours = 2.0 + 4.0 * dist.get_rank()
    return GlooFacts(
        torch_version=torch.__version__,
        averages={name: _or_none(partial(ask, ours)) for name, ask in _AVERAGES.items()},
        reduces={dtype: _or_none(partial(_all_reduced, ours, dtype, _SUM)) == 8.0 for dtype in _HALVES},
    )


def _or_none(ask: Callable[[], float]) -> float | None:
    try:
        return ask()
    except (RuntimeError, ValueError):
        return None


def _all_reduced(ours: float, dtype: torch.dtype = torch.float32, op: Any = dist.ReduceOp.AVG) -> float:
    values = torch.full((1,), ours, dtype=dtype)
    dist.all_reduce(values, op=op)
    return values.item()


def _reduce_scattered(ours: float) -> float:
    shard = torch.empty(1)
    dist.reduce_scatter_tensor(shard, torch.full((2,), ours), op=dist.ReduceOp.AVG)
    return shard.item()


def _reduce_scattered_list(ours: float) -> float:
    shard = torch.empty(1)
    dist.reduce_scatter(shard, list(torch.full((2, 1), ours)), op=dist.ReduceOp.AVG)
    return shard.item()


def _gradient_of_fsdp2(ours: float) -> float:
    layer = nn.Linear(1, 2, bias=False)  # a row for each rank
    fully_shard(layer, mesh=init_device_mesh("cpu", (2,)))
    layer(torch.full((1, 1), ours)).sum().backward()
    gradient = layer.weight.grad
    assert isinstance(gradient, DTensor)
    return gradient.to_local().item()


_SUM = dist.ReduceOp.SUM
_AVERAGES: dict[str, Callable[[float], float]] = {
    "all_reduce": _all_reduced,
    "reduce_scatter": _reduce_scattered_list,
    "reduce_scatter_tensor": _reduce_scattered,
    "fully_shard": _gradient_of_fsdp2,
}


def default_reduce_dtype() -> DefaultReduceDtype:
    """Run FSDP2 without a ``reduce_dtype``, and without ranks, and see what its gradients are reduced in."""
    seen = {}
    for param_dtype in (None, *_HALVES):
        told = communication(nn.Linear(4, 4), torch.ones(2, 4), 2, "fsdp2", param_dtype=param_dtype)
        (seen[param_dtype],) = {row.dtype for row in told.rows if row.collective == "reduce-scatter"}
    _, found, after = (inspect.getdoc(MixedPrecisionPolicy) or "").partition("reduce_dtype (")
    documented = " ".join(f"{found}{after}".partition("\n    output_dtype (")[0].split())
    return DefaultReduceDtype(torch.__version__, seen, documented)
