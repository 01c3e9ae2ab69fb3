"""Seeing every collective that PyTorch's own engines call: which one, of what, among how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from amp_lessons._base.arguments import require_whole

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
    """Record the collectives of a block in ``calls``, each with the ``phase`` that is set at that time."""

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


# --- the ledger of what a step sends: which collective, of what, how often, and what for

_OF_PARAMETERS = {
    ("all-gather", "forward"): "parameters for the forward pass",
    ("all-gather", "backward"): "parameters for the backward pass",
    ("reduce-scatter", "backward"): "gradients",
}
_OF_ACTIVATIONS = {"forward": "activations", "backward": "gradients of activations"}


@dataclass(frozen=True)
class Traffic:
    """Equal collectives of one step: ``elements`` of the whole tensor, among ``ranks``, ``times`` a step."""

    collective: str
    dtype: torch.dtype
    elements: int
    ranks: int
    times: int
    purpose: str

    @property
    def whole_bytes(self) -> int:
        """The size of the whole tensor, once."""
        return self.elements * self.dtype.itemsize

    @property
    def sent_bytes(self) -> Fraction:
        """The bytes that each rank sends in a step for all these collectives, by ``sent_bytes``."""
        return self.times * sent_bytes(self.collective, self.whole_bytes, self.ranks)


@dataclass(frozen=True)
class Communication:
    """The messages of each rank in one step of training, in the order of first occurrence."""

    strategy: str
    world_size: int
    rows: tuple[Traffic, ...]

    @property
    def sent_bytes(self) -> int:
        """The bytes that each rank sends in a step, to the nearest one."""
        return round(sum((row.sent_bytes for row in self.rows), Fraction(0)))

    @property
    def calls(self) -> int:
        """The number of collectives in a step."""
        return sum(row.times for row in self.rows)

    def by_purpose(self) -> dict[str, int]:
        """Return the bytes that each rank sends, by what for."""
        sums: dict[str, Fraction] = {}
        for row in self.rows:
            sums[row.purpose] = sums.get(row.purpose, Fraction(0)) + row.sent_bytes
        return {purpose: round(nbytes) for purpose, nbytes in sums.items()}


def rows_of(calls: Iterable[Collective], strategy: str) -> tuple[Traffic, ...]:
    """Count equal calls together, in the order of their first.

    Raises NotImplementedError for calls of which no formula says what they send.
    """
    counts = Counter(calls)
    unknown = sorted({call.name for call in counts} - set(PASSES))
    if unknown:
        raise NotImplementedError(f"what a rank sends in {', '.join(unknown)} is not known here")
    return tuple(
        Traffic(call.name, call.dtype, call.elements, call.ranks, times, _purpose(call, strategy))
        for call, times in counts.items()
    )


def _purpose(call: Collective, strategy: str) -> str:
    """Say what a collective is for; of somebody's own strategy, only when it comes."""
    if strategy == "ddp":
        return "buffers" if call.name == "broadcast" else "gradients"
    if strategy == "fsdp2":
        return _OF_PARAMETERS[call.name, call.phase]
    return _OF_ACTIVATIONS[call.phase] if strategy == "tp" else f"{call.phase} pass"


# --- how many bytes a rank sends in each collective: by rings, and directly in an all-to-all.
#
# Each is a closed formula in the size of the whole tensor, the one that an all-gather leaves and a
# reduce-scatter starts from (NVIDIA/nccl-tests, doc/PERFORMANCE.md, derives them). Where a switch adds, an
# all-reduce sends less. Gloo's all-reduce, all-gather and broadcast send as much; its reduce-scatter is an
# all-reduce, and sends twice as much (torch/csrc/distributed/c10d/ProcessGroupGloo.cpp,
# reduce_scatter_tensor_coalesced).

# How often the whole tensor, but for a rank's own n-th part, passes through each rank, on average over ranks
PASSES = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "broadcast": 1, "all-to-all": 1}


def sent_bytes(collective: str, nbytes: int, ranks: int) -> Fraction:
    """Return the bytes that a ring's rank sends for a tensor of ``nbytes``: (n − 1)/n of it, or twice that.

    For a broadcast, in which the last rank sends nothing, it is the average over ranks. Raises ValueError for
    a collective that is none of ``PASSES``.
    """
    if collective not in PASSES:
        raise ValueError(f"there is no collective {collective!r}; there are {', '.join(PASSES)}")
    require_whole(nbytes, "nbytes", least=0)
    require_whole(ranks, "ranks")
    return PASSES[collective] * nbytes * Fraction(ranks - 1, ranks)
