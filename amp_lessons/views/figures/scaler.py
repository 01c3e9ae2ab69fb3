"""The life of a loss scale: what GradScaler did, step by step."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from amp_lessons.scaling import ScalerStep, ScalerTimeline
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, QUIET, ZONES, house_style


def timeline_picture(timeline: ScalerTimeline) -> Picture:
    """Draw the loss scale of every step, the clean steps counted towards growth, and the skipped steps."""
    with house_style():
        figure = Figure(figsize=(9, 3.9))
        scale_axes, count_axes = figure.subplots(
            2,
            1,
            sharex=True,
            gridspec_kw={"height_ratios": [3, 1], "left": 0.09, "right": 0.985, "top": 0.96, "bottom": 0.13},
        )
        _draw_scale(scale_axes, timeline)
        _draw_count(count_axes, timeline)
    return Picture(figure)


def _counted(step: ScalerStep, growth_interval: int) -> int:
    """Return the clean steps in a row, this one included: the scaler forgets them as it grows."""
    return growth_interval if step.next_scale > step.scale else step.growth_tracker


def _draw_scale(axes: Axes, timeline: ScalerTimeline) -> None:
    numbers = [step.step + 1 for step in timeline.steps]
    exponents = [math.log2(step.scale) for step in timeline.steps]
    axes.step(numbers, exponents, where="mid", color=ACCENT, lw=2)
    overflow = ZONES["overflowed"]
    for number, exponent, step in zip(numbers, exponents, timeline.steps, strict=True):
        if step.skipped:
            axes.axvspan(
                number - 0.5, number + 0.5, fc=overflow.tint, ec=overflow.colour, hatch=overflow.hatch, lw=0
            )
            axes.plot(number, exponent, "X", color=overflow.colour, ms=9)
    axes.set_ylim(min(exponents) - 1.5, max(exponents) + 1.5)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda exponent, _: f"$2^{{{round(exponent)}}}$"))
    axes.grid(axis="y", color=GRID)
    axes.set_ylabel("loss scale")
    axes.plot([], [], "X", color=overflow.colour, ms=9, label="overflow: step skipped")
    axes.legend(loc="upper right")


def _draw_count(axes: Axes, timeline: ScalerTimeline) -> None:
    numbers = [step.step + 1 for step in timeline.steps]
    counts = [_counted(step, timeline.growth_interval) for step in timeline.steps]
    axes.bar(
        numbers, counts, width=0.8, color=[ACCENT if n == timeline.growth_interval else QUIET for n in counts]
    )
    axes.axhline(timeline.growth_interval, color=INK, lw=0.9, ls=(0, (4, 3)))
    axes.set_ylim(0, 1.35 * max(1, min(timeline.growth_interval, 1.5 * len(numbers))))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=3))
    axes.set_ylabel("clean steps\nin a row")
    axes.set_xlabel("training step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
