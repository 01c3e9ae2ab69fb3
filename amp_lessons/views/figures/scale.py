"""A tensor against the window of a small format: where its scales put the elements, and what is lost."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from amp_lessons.formats import FloatFormat
from amp_lessons.fp8 import Placement
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, house_style, tint
from amp_lessons.views.figures.fates import FateBars
from amp_lessons.views.figures.zones import draw_zones, powers_of_two

LOW, HIGH = -32, 24  # exponents in view, after scaling
LEAST_ERROR, MOST_ERROR = 1e-3, 2.0  # a tensor that is lost altogether has an error of 1


class ScalePicture(Picture):
    """A histogram on the number line of one format, beside one bar of error for each way to scale."""

    def __init__(self, element: FloatFormat, placements: Mapping[str, Placement]) -> None:
        """Draw the axes for ``element`` and the ways of these placements, with room for each of them."""
        self._ways = list(placements)
        with house_style():
            figure = Figure(figsize=(9, 3.7))
            line = figure.add_axes((0.065, 0.15, 0.585, 0.75))
            draw_zones(line, element, LOW, HIGH, named=False)
            powers_of_two(line, step=8, clipped=(LOW, HIGH))
            line.set_xlabel(f"size after scaling, on the number line of {element.name}")
            line.set_ylabel("% of elements that are not zero")
            self._line = FateBars(line, LOW, HIGH)
            self._line.name(line, overflowed="saturates")
            tallest = [self._line.update(each.fates, each.at_stake).max() for each in placements.values()]
            line.set_ylim(0, 1.2 * max(tallest))
            self._errors, self._here = self._draw_errors(figure.add_axes((0.775, 0.15, 0.205, 0.75)))
        super().__init__(figure, [*self._line.artists, self._here, *self._errors])

    def _draw_errors(self, axes: Axes) -> tuple[list[Rectangle], Rectangle]:
        axes.set(xscale="log", xlim=(LEAST_ERROR, MOST_ERROR), ylim=(len(self._ways) - 0.4, -0.6))
        axes.xaxis.set_major_locator(FixedLocator([1e-3, 1e-2, 1e-1, 1]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda error, _: f"{100 * error:g} %"))
        axes.set_yticks(range(len(self._ways)), self._ways)
        axes.set_title("error by who shares a scale", fontsize=10, loc="right")
        axes.set_xlabel("of the norm")
        axes.grid(axis="x", color=GRID)
        axes.set_axisbelow(True)
        here = axes.axhspan(-0.46, 0.46, facecolor=tint(ACCENT), edgecolor=ACCENT, lw=1.2)
        bars = axes.barh(range(len(self._ways)), 0, left=LEAST_ERROR, height=0.56, color=INK)
        return list(bars), here

    def update(self, placement: Placement, errors: Mapping[str, float], way: str) -> None:
        """Move the bars to ``placement`` and to the error of each way, and mark the one that is shown."""
        self._line.update(placement.fates, placement.at_stake)
        self._here.set_y(self._ways.index(way) - 0.46)
        for bar, name in zip(self._errors, self._ways, strict=True):
            bar.set_width(min(max(errors[name], LEAST_ERROR), MOST_ERROR) - LEAST_ERROR)
