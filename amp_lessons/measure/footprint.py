"""What the memory of one training step is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

import torch

from amp_lessons.measure.storages import Moment, Storage, StorageLog

COMPUTED = "computed (no GPU needed)"
MEASURED = "measured here"

_MOMENTS = 400  # as many as a picture can show


@dataclass(frozen=True)
class Saved:
    """Bytes that one module made autograd keep for the backward pass, in one dtype.

    ``weight_copy`` tells the 16-bit copies of parameters, which autocast made, from activations.
    """

    module: str
    dtype: torch.dtype
    nbytes: int
    weight_copy: bool


@dataclass(frozen=True)
class Footprint:
    """The memory of one training step in its steady state, in bytes.

    ``saved`` is what the forward pass leaves for the backward pass, in the order in which modules ran.
    ``at_peak`` is what was allocated at the worst moment, by kind (see ``storages.KINDS``); ``"temporary"``
    is what is needed in passing, and ``"workspace"`` what a GPU's allocator handed out beyond the tensors
    that PyTorch shows. ``history`` is the course of the step. ``source`` says where the numbers come from.
    ``warning`` is a sentence where they are known to leave out much, as of a recurrent layer; else empty.
    """

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    saved: tuple[Saved, ...]
    at_peak: Mapping[str, int]
    peak_phase: str
    history: tuple[Moment, ...]
    source: str
    warning: str = ""

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated at any moment."""
        return sum(self.at_peak.values())

    @property
    def saved_bytes(self) -> dict[torch.dtype, int]:
        """What is saved for the backward pass by dtype, most first; see ``saved_activation_bytes``."""
        return dict(_bytes_by_dtype(self.saved).most_common())

    @property
    def weight_copy_bytes(self) -> int:
        """The part of that which is copies of parameters."""
        return sum(saved.nbytes for saved in self.saved if saved.weight_copy)

    def saved_by_module(
        self, depth: int | None = None, *, weight_copies: bool | None = None
    ) -> dict[str, dict[torch.dtype, int]]:
        """Return what is saved by module path and dtype, in the order of running.

        Paths are cut to their first ``depth`` names, so that the modules of a layer count together.
        ``weight_copies`` selects: True the copies of parameters alone, False all but them.
        """
        layers: dict[str, list[Saved]] = {}
        for saved in self.saved:
            if weight_copies not in (None, saved.weight_copy):
                continue
            layers.setdefault(".".join(saved.module.split(".")[:depth]), []).append(saved)
        return {path: dict(_bytes_by_dtype(members)) for path, members in layers.items()}


def footprint(log: StorageLog, saved: Iterable[Saved], source: str, warning: str = "") -> Footprint:
    """Sum up what ``log`` saw of one step; ``saved`` was asked of it between the two passes."""
    moments = [moment for moment in log.moments() if moment.phase]
    worst = max(moments, key=lambda moment: moment.total_bytes)
    held = log.live_bytes_by_kind()
    return Footprint(
        parameter_bytes=held["parameters"],
        gradient_bytes=held["gradients"],
        optimizer_bytes=held["optimizer state"],
        saved=tuple(saved),
        at_peak=dict(worst.live_bytes),
        peak_phase=worst.phase,
        history=tuple(_thinned(moments)),
        source=source,
        warning=warning,
    )


def saved_rows(storages: Iterable[Storage]) -> tuple[Saved, ...]:
    """Add up saved storages by module, dtype and whether they are copies of weights."""
    rows: Counter[tuple[str, torch.dtype, bool]] = Counter()
    for storage in storages:
        if storage.saved_dtype is not None:
            rows[storage.saved_by, storage.saved_dtype, storage.kind == "weight copies"] += storage.nbytes
    return tuple(Saved(module, dtype, nbytes, copy) for (module, dtype, copy), nbytes in rows.items())


def _bytes_by_dtype(rows: Iterable[Saved]) -> Counter[torch.dtype]:
    counts: Counter[torch.dtype] = Counter()
    for row in rows:
        counts[row.dtype] += row.nbytes
    return counts


def _thinned(moments: list[Moment]) -> list[Moment]:
    """Keep the worst moment of each stretch of the step, and so the peak itself."""
    stretch = -(-len(moments) // _MOMENTS)
    numbered = groupby(enumerate(moments), key=lambda item: item[0] // stretch)
    return [max((moment for _, moment in group), key=lambda m: m.total_bytes) for _, group in numbered]
