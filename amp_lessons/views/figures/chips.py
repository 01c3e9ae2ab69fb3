"""One way to show a dtype in a figure: a rounded chip in its colour, with its name."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.text import Text

from amp_lessons.views.base.style import dtype_colour


def draw_chip(axes: Axes, x: float, y: float, name: str, **text_style: Any) -> Text:
    """Write a dtype's short name, such as ``"fp16"``, as a chip centred on (x, y) in the axes' own units."""
    box = {"boxstyle": "round,pad=0.3", "facecolor": dtype_colour(name), "edgecolor": "none"}
    style: dict[str, Any] = {
        "ha": "center",
        "va": "center",
        "fontsize": 8.5,
        "fontweight": "bold",
        **text_style,
    }
    return axes.text(x, y, name, color="white", bbox=box, **style)
