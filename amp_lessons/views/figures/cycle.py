"""One training step under a loss scale, phase by phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, PAPER, QUIET, ZONES, house_style
from amp_lessons.views.figures.chips import draw_chip

ROWS = 7  # room for everything that a step ends up with, so that no row moves while it goes on


@dataclass(frozen=True)
class Quantity:
    """One line of what is in memory: its name, the short name of its dtype, its values in words.

    ``fresh`` marks what the phase just performed has changed, ``bad`` what is not finite.
    """

    name: str
    dtype: str
    values: str
    fresh: bool = False
    bad: bool = False


def cycle_picture(
    phases: Sequence[str], current: int, skipped: bool, quantities: Sequence[Quantity]
) -> Picture:
    """Draw the phases in a row with ``current`` lit (-1: none yet), and what is in memory after it below."""
    with house_style():
        figure = Figure(figsize=(9, 3.6))
        _draw_phases(figure.add_axes((0.01, 0.78, 0.98, 0.22)), phases, current, skipped)
        _draw_quantities(figure.add_axes((0.01, 0.02, 0.98, 0.74)), quantities)
    return Picture(figure)


def _draw_phases(axes: Axes, phases: Sequence[str], current: int, skipped: bool) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, len(phases))
    axes.set_ylim(0, 1)
    for i, phase in enumerate(phases):
        _draw_phase(axes, i, phase, current, crossed_out=skipped and phase == "step" and i <= current)
        if i + 1 < len(phases):
            _draw_arrow(axes, (i + 0.89, 0.52), (i + 1.06, 0.52))


def _draw_phase(axes: Axes, i: int, phase: str, current: int, crossed_out: bool) -> None:
    """Draw the ``i``-th phase as a box with its name, or what became of it."""
    lit, done = i == current, i < current
    fill = ZONES["overflowed"].colour if crossed_out else ACCENT if lit else GRID if done else PAPER
    look: dict[str, Any] = {"fc": fill, "ec": ACCENT if lit else QUIET, "lw": 1.2, "mutation_aspect": 0.4}
    axes.add_patch(FancyBboxPatch((i + 0.08, 0.32), 0.78, 0.4, boxstyle="round,pad=0.02", **look))
    colour, weight = PAPER if lit or crossed_out else INK, "bold" if lit else "normal"
    word = "skipped" if crossed_out else phase
    axes.text(i + 0.47, 0.52, word, ha="center", va="center", color=colour, fontweight=weight)


def _draw_arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=QUIET))


def _draw_quantities(axes: Axes, quantities: Sequence[Quantity]) -> None:
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(ROWS, 0)
    for row, quantity in enumerate(quantities):
        y = row + 0.5
        if quantity.fresh:
            axes.axhspan(row + 0.04, row + 0.96, color=ACCENT, alpha=0.09, lw=0)
        axes.text(0.01, y, quantity.name, va="center", fontweight="bold" if quantity.fresh else "normal")
        if quantity.dtype:
            draw_chip(axes, 0.3, y, quantity.dtype)
        colour = ZONES["overflowed"].colour if quantity.bad else INK
        weight = "bold" if quantity.bad else "normal"
        axes.text(
            0.35,
            y,
            quantity.values,
            va="center",
            family="DejaVu Sans Mono",
            fontsize=9,
            color=colour,
            fontweight=weight,
        )
