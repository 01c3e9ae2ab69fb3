"""The steps of an audited training: the loss, the loss scale, and the steps that were skipped."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from amp_lessons.audit.report.document import Document, StepEntry
from amp_lessons.audit.report.steps import by_optimizer
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, QUIET, STROKES, ZONES, house_style

HEIGHT_IN = 3.9


def timeline_picture(document: Document) -> Picture:
    """Draw loss and scale of every step; there has to be one."""
    with house_style():
        figure = Figure(figsize=(9, HEIGHT_IN))
        loss, scale = figure.subplots(
            2,
            1,
            sharex=True,
            gridspec_kw={"height_ratios": [3, 2], "left": 0.1, "right": 0.985, "top": 0.93, "bottom": 0.13},
        )
        draw_timeline(loss, scale, document)
    return Picture(figure)


def draw_timeline(loss_axes: Axes, scale_axes: Axes, document: Document) -> None:
    """Draw the loss above and the scale below, which share their steps, counted from 1."""
    optimizers = by_optimizer(document)
    strokes = STROKES if len(optimizers) > 1 else ({"color": ACCENT, "lw": 1.8},)
    for (number, steps), stroke in zip(optimizers.items(), strokes, strict=False):
        label = f"optimizer {number + 1}" if len(optimizers) > 1 else "loss"
        numbers = [step["index"] + 1 for step in steps]
        loss_axes.plot(numbers, [_finite(step["loss"]) for step in steps], label=label, **stroke)
        scale_axes.step(numbers, [_exponent(step["scale"]) for step in steps], where="mid", **stroke)
    _mark_steps(loss_axes, scale_axes, document)
    _name_axes(loss_axes, scale_axes, document["steps"])


def _mark_steps(loss_axes: Axes, scale_axes: Axes, document: Document) -> None:
    steps, overflow = document["steps"], ZONES["overflowed"].colour
    skipped = [step for step in steps if not step["happened"]]
    if skipped:
        numbers = [step["index"] + 1 for step in skipped]
        exponents = [_exponent(step["scale"]) for step in skipped]
        scale_axes.plot(numbers, exponents, "X", color=overflow, ms=8)
        _at_top(loss_axes, numbers, "X", overflow, "step skipped")
    broken = [step["index"] + 1 for step in steps if not math.isfinite(step["loss"] or 0.0)]
    if broken:
        _at_top(loss_axes, broken, "^", ZONES["underflowed"].colour, "loss inf or NaN")
    found = document["first_nonfinite"]
    if found is not None:
        loss_axes.axvline(found["step"] + 1, color=INK, lw=1, ls=":", label="first inf or NaN")


def _at_top(axes: Axes, numbers: Sequence[int], marker: str, colour: str, label: str) -> None:
    """Mark steps above the curve: they may have no loss that could be drawn."""
    heights = [0.95] * len(numbers)
    where = axes.get_xaxis_transform()
    axes.plot(numbers, heights, marker, color=colour, ms=8, label=label, transform=where, clip_on=False)


def _name_axes(loss_axes: Axes, scale_axes: Axes, steps: Sequence[StepEntry]) -> None:
    if not any(math.isfinite(step["loss"]) for step in steps if step["loss"] is not None):
        loss_axes.text(0.5, 0.5, "no loss was seen", transform=loss_axes.transAxes, color=QUIET, ha="center")
        loss_axes.set_yticks([])
    loss_axes.set_ylabel("loss")
    loss_axes.margins(x=0.01, y=0.12)
    loss_axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=4, fontsize=9, borderaxespad=0.2)
    low, high = _range([_exponent(step["scale"]) for step in steps])
    scale_axes.set_ylim(low - 1.5, high + 1.5)
    scale_axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    scale_axes.yaxis.set_major_formatter(FuncFormatter(lambda exponent, _: f"$2^{{{round(exponent)}}}$"))
    scale_axes.set(ylabel="loss scale", xlabel="optimizer step")
    scale_axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    for axes in (loss_axes, scale_axes):
        axes.grid(axis="y", color=GRID)


def _finite(loss: float | None) -> float:
    return loss if loss is not None and math.isfinite(loss) else math.nan


def _exponent(scale: float) -> float:
    return math.log2(scale) if scale > 0 and math.isfinite(scale) else math.nan


def _range(exponents: Sequence[float]) -> tuple[float, float]:
    known = [each for each in exponents if math.isfinite(each)]
    return (min(known), max(known)) if known else (0.0, 0.0)
