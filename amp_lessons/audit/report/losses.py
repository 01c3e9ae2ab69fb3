"""Losses of each layer in each format, over all steps that were looked at, and step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from amp_lessons._base.text.words import fraction
from amp_lessons.audit.seen import AS_TRAINED, LayerSeen, mean
from amp_lessons.scaling.fates import Census

if TYPE_CHECKING:
    from amp_lessons.audit.report.report import Report

_FEWER_BITS = ("fp16", "bf16", "fp8", "fp4", "float8")  # than mixed precision keeps weights and moments in
By = Literal["count", "norm"]


@dataclass(frozen=True)
class Loss:
    """The share of the gradients that become zero: of those that are not zero, by count and by norm."""

    count: float
    norm: float

    def __str__(self) -> str:
        return f"{fraction(self.count)} / {fraction(self.norm)}"


@dataclass(frozen=True)
class LossMap:
    """Losses at the steps that were looked at: a row for each of ``layers``, the worst first.

    ``shares`` are None where a layer was not looked at; ``steps`` count from 0; there are ``total`` layers.
    """

    layers: tuple[str, ...]
    steps: tuple[int, ...]
    shares: tuple[tuple[float | None, ...], ...]
    total: int

    @property
    def most(self) -> float:
        """The largest share of all, 0.0 where none is known."""
        return max((share for row in self.shares for share in row if share is not None), default=0.0)


@dataclass(frozen=True)
class LayerRow:
    """One layer over all sampled steps.

    ``losses`` maps formats to what is lost in them, ``AS_TRAINED`` among them where autocast was on; None
    where every gradient was 0, inf or NaN already, so that nothing was left to lose. ``zeros`` is the mean
    fraction of the gradients that were exactly 0: some of them underflowed in the backward pass.
    ``lost_updates`` is the mean share of its weights that a step left as they were. ``unusual`` are the
    dtypes of what mixed precision keeps in fp32 and this training does not.
    """

    name: str
    parameters: int
    losses: dict[str, Loss | None]
    zeros: float
    lost_updates: float | None
    unusual: dict[str, str]


def formats_of(report: Report) -> tuple[str, ...]:
    """Return the formats for which there are numbers, the one that was used first."""
    steps = (step for layer in report.layers.values() for step in layer.history)
    known = dict.fromkeys(name for step in steps for name in step.censuses)
    return tuple(sorted(known, key=lambda name: name != AS_TRAINED))


def used_format(report: Report) -> str:
    """Name the format that autocast used, "" where it was off."""
    censuses = (step.census for layer in report.layers.values() for step in layer.history)
    return next((census.dtype_name for census in censuses if census), "")


def layer_rows(report: Report) -> list[LayerRow]:
    """Return all layers, those that lose most first: in training, then in the formats that were not used."""
    skipped = {step.index for step in report.steps if not step.happened}
    nothing = Loss(0.0, 0.0)

    def badness(row: LayerRow) -> tuple[float, ...]:
        trained = row.losses.get(AS_TRAINED) or nothing
        others = [(loss or nothing).norm for name, loss in row.losses.items() if name != AS_TRAINED]
        return trained.norm, trained.count, row.lost_updates or 0.0, *others

    rows = [_row(layer, skipped) for layer in report.layers.values()]
    return sorted(rows, key=badness, reverse=True)


def loss_map(report: Report, number_format: str, by: By, most: int) -> LossMap:
    """Return what the ``most`` layers that lose most in a format lose at each step, by count or by norm."""
    histories = {layer.name: _history(layer, number_format, by) for layer in report.layers.values()}
    means = {name: mean(history.values()) or 0.0 for name, history in histories.items()}
    worst = sorted(histories, key=lambda name: means[name], reverse=True)[:most]
    steps = tuple(sorted({step for name in worst for step in histories[name]}))
    shares = tuple(tuple(histories[name].get(step) for step in steps) for name in worst)
    return LossMap(tuple(worst), steps, shares, len(histories))


def layer_curves(report: Report, layer: str, by: By) -> dict[str, dict[int, float]]:
    """Return what one layer loses in each format, by step; empty for a layer that is not known."""
    found = report.layers.get(layer)
    return {} if found is None else {name: _history(found, name, by) for name in formats_of(report)}


def _history(layer: LayerSeen, number_format: str, by: By) -> dict[int, float]:
    """Return what is lost by step; an overflow, say, leaves nothing that could be."""
    found = ((step.step, step.censuses.get(number_format)) for step in layer.history)
    known = {step: census for step, census in found if census is not None and census.at_stake}
    if by == "count":
        return {step: census.underflow_fraction for step, census in known.items()}
    return {step: each.underflow_norm_fraction for step, each in known.items() if each.norm is not None}


def _row(layer: LayerSeen, skipped: Set[int]) -> LayerRow:
    history = layer.history
    # clipping by an infinite norm makes zeros of the gradients that a skipped step throws away
    made = [step for step in history if step.step not in skipped] or history
    formats = dict.fromkeys(name for step in history for name in step.censuses)
    return LayerRow(
        name=layer.name,
        parameters=layer.parameters,
        losses={name: _together([step.censuses.get(name) for step in history]) for name in formats},
        zeros=mean(step.zero_fraction for step in made) or 0.0,
        lost_updates=mean(step.lost_update_fraction for step in history),
        unusual={
            what: dtype
            for what, dtype in layer.dtype_names.items()
            if what != "output" and dtype.startswith(_FEWER_BITS)  # outputs are meant to be in 16 bits
        },
    )


def _together(censuses: Sequence[Census | None]) -> Loss | None:
    """Add up the gradients of several steps, as if they were those of one; None where none is at stake."""
    known = [census for census in censuses if census is not None]
    at_stake = sum(census.at_stake for census in known)
    norm = math.hypot(*(census.norm or 0.0 for census in known))
    lost_norm = math.hypot(*(census.underflowed_norm or 0.0 for census in known))
    count = sum(census.underflowed for census in known)
    return Loss(count / at_stake, lost_norm / norm if norm else 0.0) if at_stake else None
