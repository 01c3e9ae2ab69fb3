"""Loss curves to diagnose: one of them large, with its loss scale, or all of them small and numbered."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator

from amp_lessons.clinic import LossCurve
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, QUIET, ZONES, house_style

_COLUMNS = 3
_SCALE_COLOUR = ZONES["underflowed"].colour


def loss_curve_picture(curve: LossCurve) -> Picture:
    """Draw the loss over the steps, and below it the loss scale, where there is one."""
    with house_style():
        figure = Figure(figsize=(9, 4.0))
        above, below = figure.subplots(
            2,
            1,
            sharex=True,
            gridspec_kw={"height_ratios": [3, 1], "left": 0.1, "right": 0.985, "top": 0.97}
            | {"bottom": 0.12, "hspace": 0.12},
        )
        _draw_losses(above, curve)
        above.set_ylabel("loss")
        _draw_scales(below, curve)
        below.set(ylabel="loss scale", xlabel="training step")
        if curve.beside:
            above.legend(loc="center right")
    return Picture(figure)


def gallery_picture(curves: Sequence[LossCurve]) -> Picture:
    """Draw all curves small, numbered from 1 by rows: the loss, and its scale as a thin dashed line."""
    rows = math.ceil(len(curves) / _COLUMNS)
    with house_style():
        figure = Figure(figsize=(9, 1.55 * rows + 0.2))
        axes = figure.subplots(rows, _COLUMNS, squeeze=False)
        figure.subplots_adjust(left=0.06, right=0.94, top=0.965, bottom=0.045, hspace=0.42, wspace=0.42)
        for number, (each, curve) in enumerate(zip(axes.flat, curves, strict=True), start=1):
            _draw_losses(each, curve)
            each.set_title(str(number), pad=3)
            if curve.scales:
                _draw_scales(each.twinx(), curve, small=True)
        for each in figure.axes:
            each.tick_params(labelsize=8, length=2)
    return Picture(figure)


def _draw_losses(axes: Axes, curve: LossCurve) -> None:
    steps = range(1, len(curve.losses) + 1)
    axes.plot(steps, curve.losses, color=ACCENT, lw=1.3, label="this run")
    for name, values in curve.beside.items():
        axes.plot(steps, values, color=INK, lw=1.3, ls=(0, (2, 2)), label=name)
    broken = [step for step, loss in zip(steps, curve.losses, strict=True) if not math.isfinite(loss)]
    if broken:
        axes.axvspan(broken[0], broken[-1], color=GRID, lw=0)
        middle = (broken[0] + broken[-1]) / 2
        axes.text(middle, 0.5, "NaN", transform=axes.get_xaxis_transform(), ha="center", color=INK)
    axes.set_xlim(0, len(curve.losses) + 1)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))


def _draw_scales(axes: Axes, curve: LossCurve, small: bool = False) -> None:
    if not curve.scales:
        axes.text(
            0.5, 0.5, "no loss scaling", transform=axes.transAxes, ha="center", va="center", color=QUIET
        )
        axes.set_yticks([])
        return
    steps = range(1, len(curve.scales) + 1)
    stroke = {"lw": 1.0, "ls": (0, (4, 2))} if small else {"lw": 1.6}
    axes.plot(steps, curve.scales, color=_SCALE_COLOUR, drawstyle="steps-post", **stroke)
    axes.set_yscale("log", base=2)
    if max(curve.scales) == min(curve.scales):
        axes.set_ylim(curve.scales[0] / 4, curve.scales[0] * 4)
    axes.minorticks_off()
    axes.yaxis.set_major_locator(_whole_powers(curve.scales))
    axes.tick_params(axis="y", colors=_SCALE_COLOUR)
    axes.spines["right"].set_visible(False)


def _whole_powers(scales: Sequence[float]) -> FixedLocator:
    """Return ticks at three powers of two at most: the highest scale, the lowest, and one between."""
    low, high = (math.floor(math.log2(found(scales))) for found in (min, max))
    return FixedLocator([2.0**exponent for exponent in sorted({low, (low + high) // 2, high})])
