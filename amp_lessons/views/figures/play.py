"""A few quantities, side by side, with one bar for each precision."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.text.words import superscripts
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import INK, dtype_colour, house_style

Panels = Mapping[str, Mapping[str, float]]


def panels_picture(panels: Panels, most: Mapping[str, float]) -> Picture:
    """Draw one panel for each quantity, whose name carries its unit, with a bar for each precision.

    The axis of a quantity has room for the number that it has in ``most``: pictures with the same one can be
    compared.
    """
    with house_style():
        figure = Figure(figsize=(9, 0.75 + 0.42 * max(len(bars) for bars in panels.values())))
        every_axes = figure.subplots(1, len(panels), squeeze=False)[0]
        figure.subplots_adjust(left=0.07, right=0.985, top=0.80, bottom=0.06, wspace=0.28)
        for axes, (quantity, bars) in zip(every_axes, panels.items(), strict=True):
            _draw_panel(axes, quantity, bars, most[quantity])
    return Picture(figure)


def _draw_panel(axes: Axes, quantity: str, bars: Mapping[str, float], most: float) -> None:
    names, values = list(bars), list(bars.values())
    axes.barh(names, values, color=[dtype_colour(name) for name in names], height=0.62)
    for row, value in enumerate(values):
        axes.text(value, row, superscripts(f" {value:,.4g}"), va="center", color=INK)
    axes.set_xlim(0, 1.3 * max(most, 1e-12))
    axes.invert_yaxis()
    axes.set_title(quantity)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(length=0)
    axes.set_xticks([])
