"""Axes as several pictures have them: sheets of lines, bars with names beside them, and what curves lack."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons._base.drawing.style import GRID

WHOLE = (0.0, 0.0, 1.0, 1.0)
BESIDE: dict[str, Any] = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}  # where a legend stands


def sheet(
    figure: Figure, width: float, lines: float, rect: tuple[float, float, float, float] = WHOLE
) -> Axes:
    """Add axes that are not drawn, from 0 to ``width``, and from the top down 0 to ``lines``."""
    axes = figure.add_axes(rect)
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(lines, 0)
    return axes


def write_beside(axes: Axes, y: float, text: str, distance: float, **style: Any) -> None:
    """Write to the left of the axes; ``distance`` is a share of their width."""
    place: dict[str, Any] = {"ha": "right", "va": "center", "transform": axes.get_yaxis_transform()}
    axes.text(-distance, y, text, **{"fontsize": 9, **place, **style})


def leave_to_bars(axes: Axes) -> None:
    """Take the ticks away where bars say themselves how long they are; the line that they begin at stays."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(GRID)


def mark_not_finite(axes: Axes, values: Sequence[float], height: float, **style: Any) -> bool:
    """Mark where values, numbered from 1, are inf or NaN, which no curve can show; say whether any is.

    ``height`` is a share of the axes'.
    """
    broken = [number for number, value in enumerate(values, start=1) if not math.isfinite(value)]
    if broken:
        axes.plot(broken, [height] * len(broken), "X", transform=axes.get_xaxis_transform(), **style)
    return bool(broken)
