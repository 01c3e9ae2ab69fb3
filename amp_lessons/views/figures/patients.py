"""What somebody sees of one run of a patient: its curves, and its numbers in words."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from amp_lessons.clinic import Curve, Observed
from amp_lessons.text.words import number
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, ZONES, house_style

_WIDTH, _CURVES, _LINE, _MARGIN = 9.0, 2.6, 0.3, 0.15  # in inches


def observed_picture(observed: Observed) -> Picture:
    """Draw each curve in a panel of its own, and write the numbers below them."""
    curves = _CURVES if observed.curves else 0.0
    words = _MARGIN + _LINE * len(observed.numbers)
    height = curves + words
    with house_style():
        figure = Figure(figsize=(_WIDTH, height))
        for place, curve in enumerate(observed.curves):
            _draw(figure.add_axes(_panel(place, len(observed.curves), words / height, height)), curve)
        for line, (name, amount) in enumerate(reversed(observed.numbers.items())):
            y = (0.5 * _MARGIN + _LINE * (line + 0.5)) / height
            figure.text(0.11, y, number(amount), color=ACCENT, weight="bold", ha="right", va="center")
            figure.text(0.125, y, name, color=INK, va="center")
    return Picture(figure)


def _panel(place: int, panels: int, bottom: float, height: float) -> tuple[float, float, float, float]:
    """Return left, bottom, width and height of one of at most two panels, as shares of the figure."""
    below, above = 0.5 / height, 0.3 / height  # for the axis's name, and for the quantity's
    left = (0.09, 0.57)[place] if panels > 1 else 0.09
    return left, bottom + below, 0.41 if panels > 1 else 0.89, 1 - bottom - below - above


def _draw(axes: Axes, curve: Curve) -> None:
    steps = range(1, len(curve.values) + 1)
    axes.plot(steps, curve.values, color=ACCENT, lw=1.6, marker="o", ms=4)
    _mark_what_is_not_finite(axes, curve.values)
    if curve.at:
        axes.set_xticks(steps, [f"{place:,}" for place in curve.at])
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, len(curve.values) + 0.5)
    axes.set_xlabel(curve.over)
    axes.set_title(curve.quantity, fontsize=10 if len(curve.quantity) < 45 else 8, weight="normal")
    _keep_little_little(axes, curve.values)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(axis="y", color=GRID)


def _keep_little_little(axes: Axes, values: tuple[float, ...]) -> None:
    """What hardly changes is to look so: show a twentieth of its size at least."""
    finite = [value for value in values if math.isfinite(value)]
    if finite and max(finite) - min(finite) < 0.025 * max(map(abs, finite)):
        middle, span = (max(finite) + min(finite)) / 2, 0.025 * max(map(abs, finite))
        axes.set_ylim(middle - span, middle + span)


def _mark_what_is_not_finite(axes: Axes, values: tuple[float, ...]) -> None:
    """NaN and inf are no points of a line: mark them at its foot, and say what they are."""
    broken = [step for step, value in enumerate(values, start=1) if not math.isfinite(value)]
    if broken:
        foot, colour = axes.get_xaxis_transform(), ZONES["overflowed"].colour
        feet = [0.04] * len(broken)
        axes.plot(broken, feet, "X", ms=6, transform=foot, color=colour, label="NaN or inf")
        axes.legend(loc="upper right")
