"""The ledger of what a step sends: which collective, of what, how often, and what for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import torch

from amp_lessons.parallel.collectives import Collective
from amp_lessons.parallel.volumes import PASSES, sent_bytes

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
        """What each rank sends in a step, all times together; see ``volumes``."""
        return self.times * sent_bytes(self.collective, self.whole_bytes, self.ranks)


@dataclass(frozen=True)
class Communication:
    """What each rank sends in one step of training, in the order of first occurrence."""

    strategy: str
    world_size: int
    rows: tuple[Traffic, ...]

    @property
    def sent_bytes(self) -> int:
        """The bytes that each rank sends in a step, to the nearest one."""
        return round(sum((row.sent_bytes for row in self.rows), Fraction(0)))

    @property
    def calls(self) -> int:
        """How many collectives a step has."""
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
