"""Seeing every collective that PyTorch's own engines call: which one, of what, among how many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# By the beginning of the operation's name, in c10d and in _c10d_functional; the longer name first
_COLLECTIVES = {
    "allreduce": "all-reduce",
    "all_reduce": "all-reduce",
    "allgather": "all-gather",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "alltoall": "all-to-all",
    "all_to_all": "all-to-all",
    "send": "send",
}
_NAMESPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_SEND_NOTHING = ("wait_tensor", "wrap_tensor", "barrier", "monitored_barrier", "recv")


@dataclass(frozen=True)
class Collective:
    """One call of a collective; ``elements`` are those of the whole tensor, of all ranks.

    ``name`` is the field's, or PyTorch's own for an operation that is not listed here.
    """

    name: str
    dtype: torch.dtype
    elements: int
    ranks: int
    phase: str


class CollectiveLog(TorchDispatchMode):
    """Note the collectives of a block; set ``phase`` to what is going on."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = ""
        self.calls: list[Collective] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else each call goes through a wrapper for the compiler, which nobody uses here

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace in _NAMESPACES:
            name = func._schema.name.partition("::")[2].strip("_")
            if not name.startswith(_SEND_NOTHING):
                self.calls.append(_collective(name, (*args, *(kwargs or {}).values(), result), self.phase))
        return result


def _collective(name: str, parts: tuple[Any, ...], phase: str) -> Collective:
    known = next((told for start, told in _COLLECTIVES.items() if name.startswith(start)), name)
    tensors = [[leaf for leaf in tree_leaves(part) if isinstance(leaf, torch.Tensor)] for part in parts]
    # of what goes in and what comes out, the whole tensor is the larger one
    whole = max(tensors, key=lambda group: sum(tensor.numel() for tensor in group))
    elements = sum(tensor.numel() for tensor in whole)
    return Collective(known, whole[0].dtype, elements, _ranks(parts), phase)


def _ranks(parts: tuple[Any, ...]) -> int:
    """Return how many take part: c10d's operations are given the group, the functional ones its name."""
    for part in parts:
        if isinstance(part, torch.ScriptObject) and "ProcessGroup" in str(part._type()):
            return dist.ProcessGroup.unbox(part).size()
    name = next(part for part in reversed(parts) if isinstance(part, str))
    return _resolve_process_group(name).size()  # type: ignore[arg-type]
