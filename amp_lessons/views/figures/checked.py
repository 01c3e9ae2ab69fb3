"""What an exercise should have produced beside what the learner's code did."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from amp_lessons.exercises import SideBySide
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, INK, STROKES, ZONES, house_style

LOG_FROM_RATIO = 100  # where linear axes would press the smaller values flat


def comparison_picture(comparisons: Sequence[SideBySide]) -> Picture:
    """Draw one panel for each comparison, with the expected values under the learner's."""
    height = 2.5 * len(comparisons) + 0.3
    with house_style():
        figure = Figure(figsize=(9, height))
        every_axes = figure.subplots(len(comparisons), 1, squeeze=False)[:, 0]
        figure.subplots_adjust(left=0.085, right=0.77, top=1 - 0.4 / height, bottom=0.55 / height, hspace=0.6)
        for axes, comparison in zip(every_axes, comparisons, strict=True):
            _draw_panel(axes, comparison)
    return Picture(figure)


def _draw_panel(axes: Axes, comparison: SideBySide) -> None:
    powers = are_powers_of_two(comparison.expected)
    expected, yours = STROKES[:2]
    drawstyle = "steps-mid" if powers else "default"
    for name, values, stroke in (
        ("expected", comparison.expected, expected),
        ("yours", comparison.yours, {**yours, "marker": "o", "ms": 3.5}),
    ):
        axes.plot(range(1, len(values) + 1), values, label=name, drawstyle=drawstyle, **stroke)
    _choose_scale(axes, comparison, powers)
    _mark_lost(axes, comparison.yours)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, max(len(comparison.expected), len(comparison.yours)) + 0.5)
    axes.set_xlabel(comparison.index)
    axes.set_title(comparison.quantity)
    axes.grid(axis="y", color=GRID)
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.2)


def are_powers_of_two(values: Sequence[float]) -> bool:
    """Whether these are what loss scales are: they are drawn as steps between powers of two."""
    return all(value > 0 and math.frexp(value)[0] == 0.5 for value in values)


def _choose_scale(axes: Axes, comparison: SideBySide, powers: bool) -> None:
    drawn = [value for value in (*comparison.expected, *comparison.yours) if math.isfinite(value)]
    if not drawn or min(drawn) <= 0 or not (powers or max(drawn) > LOG_FROM_RATIO * min(drawn)):
        return
    axes.set_yscale("log", base=2 if powers else 10)
    if powers:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"$2^{{{round(math.log2(value))}}}$"))


def _mark_lost(axes: Axes, values: Sequence[float]) -> None:
    """Mark where the learner's value is inf or nan, which no curve can show."""
    lost = [number for number, value in enumerate(values, start=1) if not math.isfinite(value)]
    if lost:
        top = [0.94] * len(lost)
        where = axes.get_xaxis_transform()
        colour = ZONES["overflowed"].colour
        axes.plot(lost, top, "X", color=colour, mec=INK, ms=7, transform=where, label="yours: inf or nan")
