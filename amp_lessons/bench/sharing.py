"""What a training step needs on each of several ranks, by the bookkeeping of ``parallel``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import nn

from amp_lessons import parallel
from amp_lessons.measure import Footprint
from amp_lessons.measure.footprint import Moment

MOST_RANKS = 4096
_HELD = {"parameters": "weights", "gradients": "gradients", "optimizer state": "Adam's moments"}
_GATHERS = 3  # from this stage of ZeRO on


@dataclass(frozen=True)
class Sharing:
    """The share of each kind of memory that a rank holds, and what it ``gathered`` of others', in bytes.

    Activations, inputs and buffers are a rank's own: each has a batch of its own. ``steps_on`` is the share
    of the parameters that its optimizer steps. Buffers of communication are not counted.
    """

    shares: Mapping[str, float]
    gathered: int
    steps_on: float

    def of(self, found: Footprint) -> Footprint:
        """Return what a rank needs of a step that one process alone has this footprint of."""
        history = tuple(self._moment(moment) for moment in found.history)
        worst = max(history, key=lambda moment: moment.total_bytes)
        return replace(
            found,
            parameter_bytes=self._part("parameters", found.parameter_bytes),
            gradient_bytes=self._part("gradients", found.gradient_bytes),
            optimizer_bytes=self._part("optimizer state", found.optimizer_bytes),
            at_peak=worst.live_bytes,
            peak_phase=worst.phase,
            history=history,
        )

    def _part(self, kind: str, nbytes: int) -> int:
        return round(nbytes * self.shares.get(kind, 1.0))

    def _moment(self, moment: Moment) -> Moment:
        live = {kind: self._part(kind, nbytes) for kind, nbytes in moment.live_bytes.items()}
        if moment.phase == "optimizer" and "temporary" in live:
            live["temporary"] = round(live["temporary"] * self.steps_on)
        elif moment.phase != "optimizer" and self.gathered:
            live["parameters"] = live.get("parameters", 0) + self.gathered
            live.pop("weight copies", None)  # what is gathered is in autocast's dtype already
        return Moment(moment.phase, live)


def sharing(model: nn.Module, ranks: int, stage: str, itemsize: int) -> Sharing:
    """Return how ``ranks`` share a model by a ``stage`` of ``parallel.STAGES``.

    From stage 3 on parameters are gathered for computing, in ``itemsize`` bytes each: those of the largest
    block and of the next, which is fetched meanwhile, and those of no block, which stay.
    """
    whole = parallel.memory_per_rank(model, 1, stage, "fp32")
    gathers = parallel.STAGES[stage] >= _GATHERS and ranks > 1
    part = parallel.memory_per_rank(
        model,
        ranks,
        stage,
        "fp32",
        gathered_parameters=_gathered(model) if gathers else 0,
        gathered_itemsize=itemsize,
    )
    shares = {kind: part.held[what] / whole.held[what] for kind, what in _HELD.items()}
    return Sharing(shares, part.gathered, shares["optimizer state"])


def _gathered(model: nn.Module) -> int:
    """Return how many parameters FSDP2 holds whole at a time, sharded by blocks, as it usually is."""
    from amp_lessons.parallel.traffic import units_of  # it loads DTensor

    blocks = [_count(model.get_submodule(name)) for name in units_of(model)]
    return min(_count(model), _count(model) - sum(blocks) + 2 * max(blocks, default=0))


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
