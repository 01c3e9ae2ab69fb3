"""Find the modules that must not compute in 16 bits, by running each of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from amp_lessons._base.arguments import require, require_number
from amp_lessons.autocast.cuda_on_cpu import region
from amp_lessons.autocast.islands.fp32 import in_fp32
from amp_lessons.autocast.islands.replay import (
    Dtypes,
    ModuleCall,
    ModuleCallLog,
    island_error,
    largest_magnitude,
    own_error,
    same_draws,
)
from amp_lessons.autocast.running import PreparedRun, prepare
from amp_lessons.precisions import HALF_DTYPES

# Of a norm, relative. Some ten times what rounding does to a matrix product of random numbers.
TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.05}
_MOST_ROUNDS = 8
_SAME = 0.1  # of the tolerance: what a module may differ by from one fp32 pass to the next


@dataclass(frozen=True)
class Island:
    """A module whose own operations go wrong under autocast, and are right in an island of fp32.

    ``error`` is that of its output, or of what it gives to other modules, relative to fp32; inf where it is
    not finite. ``island_error`` is what is left of it in the island. ``largest`` is the largest magnitude of
    its output in fp32. ``module`` is "" for the model itself.
    """

    module: str
    kind: str
    error: float
    island_error: float
    largest: float

    @property
    def overflows(self) -> bool:
        """Whether inf or NaN come out, rather than finite numbers that are wrong."""
        return self.error == float("inf")


@dataclass(frozen=True)
class Islands:
    """The islands that a model needs under autocast in ``dtype``, in the order in which they end.

    ``beyond`` names modules that go wrong also as islands: what they are given in 16 bits is already too
    coarse, or too large. ``unexamined`` names those that could not be run by themselves, that are
    not the same each time they run, as with noise of their own, or for which no time was left; ``examined``
    counts the others.
    """

    dtype: torch.dtype
    found: tuple[Island, ...]
    beyond: tuple[str, ...]
    unexamined: tuple[str, ...]
    examined: int

    @property
    def names(self) -> tuple[str, ...]:
        """The paths of the modules, as ``in_fp32`` takes them."""
        return tuple(island.module for island in self.found)


@torch.no_grad()
def find_islands(
    model: nn.Module,
    *inputs: Any,
    dtype: torch.dtype = torch.float16,
    device_type: str = "cuda",
    tolerance: float | None = None,
    seconds: float = 60.0,
    **named_inputs: Any,
) -> Islands:
    """Find the modules of ``model(*inputs, **named_inputs)`` that need an island of fp32 under autocast.

    The model runs once in fp32. Then each module runs by itself on what it was given there, under autocast in
    ``dtype`` by the rules of ``device_type``: one that goes wrong by more than ``tolerance`` (``TOLERANCE``),
    and does not in fp32, is an island. Of modules within modules it is the innermost whose own operations go
    wrong. What islands return, in fp32, may be too large for the next module: then that is one too.

    Tensors are real; on a CPU, products of float16 are computed in float32 and rounded. Dropout drops
    nothing. Model, buffers and random numbers are left as they were. After ``seconds`` no further module is
    examined. Raises ``ValueError`` for a model with 16-bit weights, and what the model raises.
    """
    require(dtype, torch.dtype, "dtype", "torch.float16 or torch.bfloat16")
    deadline = time.monotonic() + require_number(seconds, "seconds", above=0)
    if dtype not in TOLERANCE:
        raise ValueError(f"dtype is torch.float16 or torch.bfloat16, not {dtype}")
    prepared = prepare(model, inputs, named_inputs, device_type, dtype)
    for name, parameter in model.named_parameters():
        if parameter.dtype in HALF_DTYPES:
            raise ValueError(f"{name} is in {parameter.dtype} already; autocast needs fp32 weights")
    limit = TOLERANCE[dtype] if tolerance is None else require_number(tolerance, "tolerance", above=0)
    with prepared.without_trace():
        search = _Search(prepared, limit, deadline)
        for _ in range(_MOST_ROUNDS):
            if not search.another_round():
                break
    return search.result()


class _Search:
    """Examines the calls of one pass, in rounds; each begins from what the islands found so far changed."""

    def __init__(self, prepared: PreparedRun, limit: float, deadline: float) -> None:
        self.prepared, self.limit, self.deadline = prepared, limit, deadline
        self.calls = self._written_down(None, copied=True)
        self.found: dict[str, Island] = {}
        self.beyond: dict[str, tuple[ModuleCall, float]] = {}
        self.unexamined: dict[str, None] = {}
        self._situations: dict[int, Any] = {}

    def another_round(self) -> bool:
        """Examine what is not known to be right; return whether islands were added.

        A module waits for those that it calls: what they return is to be right before it is blamed.
        """
        known = set(self.found)
        with in_fp32(self.prepared.model, self.found):
            dtypes = _Dtypes(self._written_down(self.prepared.dtype, copied=False))
        inside = {id(below) for call in self._islands() for below in call.below()}
        new: set[str] = set()
        for call in self.calls:
            situation = dtypes.of(call)[0], tuple(dtypes.of(child)[1] for child in call.children)
            waits = any(child.path in new | self.beyond.keys() for child in call.below() if child is not call)
            if id(call) not in inside and self._situations.get(id(call)) != situation and not waits:
                self._situations[id(call)] = situation
                self._examine(call, dtypes)
                new = self.found.keys() - known
        if self.found.keys() == known:
            self._look_above(dtypes)
        return self.found.keys() != known

    def result(self) -> Islands:
        """Return what was found; a module within an island is none of its own."""
        inside = {below.path for call in self._islands() for below in call.below() if below is not call}
        assert self.prepared.dtype is not None
        return Islands(
            self.prepared.dtype,
            tuple(island for path, island in self.found.items() if path not in inside),
            tuple(path for path in self.beyond if path not in inside),
            tuple(self.unexamined),
            len({call.path for call in self.calls} - self.unexamined.keys()),
        )

    def _islands(self) -> Iterator[ModuleCall]:
        return (call for call in self.calls if call.path in self.found)

    def _examine(self, call: ModuleCall, dtypes: _Dtypes) -> None:
        """Run one module by itself; note whether an island helps if it goes wrong."""
        if call.path in self.unexamined or time.monotonic() > self.deadline:
            self.unexamined[call.path] = None
            return
        inputs = dtypes.of(call)[0]
        self.beyond.pop(call.path, None)
        try:
            with self._passing(self.prepared.dtype):
                error = own_error(call, inputs, lambda child: dtypes.of(child)[1])
            if error > self.limit:
                self._judge(call, error, inputs)
        except Exception:  # whatever a module may raise that runs by itself
            self.unexamined[call.path] = None

    def _judge(self, call: ModuleCall, error: float, inputs: Dtypes) -> None:
        """Note what an error means: nothing, for a module that in fp32 is not the same each time it runs."""
        with self._passing(None):
            again = own_error(call, call.dtypes[0], lambda child: child.dtypes[1])
        if again > _SAME * self.limit:
            self.unexamined[call.path] = None
            return
        with self._passing(self.prepared.dtype):
            if not self._found(call, error, inputs):
                self.beyond[call.path] = call, error

    def _found(self, call: ModuleCall, error: float, inputs: Dtypes) -> bool:
        """Note an island if the module is right in fp32."""
        left = island_error(call, inputs)
        if left > self.limit:
            return False
        kind, largest = type(call.module).__name__, largest_magnitude(call.output)
        self.found.setdefault(call.path, Island(call.path, kind, error, left, largest))
        return True

    def _look_above(self, dtypes: _Dtypes) -> None:
        """Make an island of what calls a module that fp32 does not help: of the first for which it does."""
        for path, (wrong, error) in list(self.beyond.items()):
            callers = [call for call in self.calls if call is not wrong and wrong in call.below()]
            if time.monotonic() > self.deadline:
                return
            with self._passing(self.prepared.dtype):
                if any(self._found(caller, error, dtypes.of(caller)[0]) for caller in callers):
                    del self.beyond[path]

    def _written_down(self, dtype: torch.dtype | None, *, copied: bool) -> list[ModuleCall]:
        """Run the model and return all calls, those of inner modules before those that made them."""
        log = ModuleCallLog(copied=copied)
        with self._passing(dtype), log.following(self.prepared.model):
            self.prepared.forward()
        return [call for root in log.roots for call in root.below()]

    @contextmanager
    def _passing(self, dtype: torch.dtype | None) -> Iterator[None]:
        with same_draws(), region(self.prepared.device_type, dtype, self.prepared.device):
            yield


class _Dtypes:
    """The dtypes that calls have in a pass under autocast; calls of one path are taken to be alike."""

    def __init__(self, calls: list[ModuleCall]) -> None:
        self._of_path: dict[str, list[tuple[Dtypes, Dtypes]]] = {}
        for call in calls:
            self._of_path.setdefault(call.path, []).append(call.dtypes)

    def of(self, call: ModuleCall) -> tuple[Dtypes, Dtypes]:
        """Return the dtypes of what goes in and comes out; of a call that did not happen, its own."""
        return self._of_path.get(call.path, [call.dtypes])[0]
