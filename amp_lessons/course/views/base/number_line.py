"""The number line of a format, drawn the same way wherever it appears.

Its four zones, powers of two along it, and dtypes as chips in their colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator

from amp_lessons._base.drawing.style import (
    GRID,
    INK,
    POWERS,
    QUIET,
    SMALL,
    ZONES,
    dtype_colour,
    size_that_fits,
    tint,
)
from amp_lessons._base.text.words import power
from amp_lessons.formats import FloatFormat

_NAME = 10  # points, of a zone's name where there is room
LEAST_ERROR = 1e-8  # that is drawn, where errors are of sums in fp32


def zone_edges(number_format: FloatFormat) -> tuple[float, float, float]:
    """Return where the zones of a format meet, as exponents of two.

    Below the first edge values round to zero (half the smallest subnormal), up to the second they are
    subnormal, from the third on they overflow.
    """
    floor = number_format.smallest_subnormal or number_format.smallest_normal
    return math.log2(floor) - 1, math.log2(number_format.smallest_normal), math.log2(number_format.max)


def draw_zones(
    axes: Axes, number_format: FloatFormat, low: int, high: int, *, named: bool = True, upright: bool = False
) -> None:
    """Tint the zones of a format between ``2**low`` and ``2**high`` on an axis of exponents.

    If ``named``, those that are wide enough bear their names, ``upright`` where the picture is narrow.
    """
    axes.set_xlim(low, high)
    figure = axes.get_figure(root=True)
    assert figure is not None
    inches = axes.get_position().width * figure.get_figwidth() / (high - low)  # of an exponent
    edges = [low, *(min(max(edge, low), high) for edge in zone_edges(number_format)), high]
    for zone, left, right in zip(ZONES.values(), edges[:-1], edges[1:], strict=True):
        if right <= left:
            continue
        axes.axvspan(left, right, facecolor=zone.tint, lw=0)
        if named and right - left > 4:
            axes.text(
                (left + right) / 2,
                0.985,
                zone.name,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="top",
                rotation="vertical" if upright else "horizontal",
                fontsize=_NAME
                if upright
                else size_that_fits(zone.name, (right - left) * inches - 0.08, _NAME),
                color=INK,
                fontweight="bold",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
            )
    for edge in edges[1:-1]:
        if low < edge < high:
            axes.axvline(edge, color=QUIET, lw=0.8)


def two_to(exponent: int) -> str:
    """Return a power of two and what it is: ``2¹⁰ = 1,024``."""
    return f"{power(2, exponent)} = {2**exponent:,}"


def powers_of_ten(axis: Axis) -> None:
    """Label a logarithmic axis with powers of ten, all of them written alike."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(10, round(math.log10(value)))))


def errors_by_count(axes: Axes, counts: Sequence[int], most: float, margin: float) -> None:
    """Make axes of relative errors up to ``most`` over ``counts`` that double, both logarithmic."""
    axes.set(xscale="log", yscale="log", ylim=(LEAST_ERROR, most))
    axes.set_xlim(counts[0] / margin, counts[-1] * margin)
    axes.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=9)
    axes.xaxis.set_minor_locator(NullLocator())
    powers_of_ten(axes.yaxis)
    axes.grid(color=GRID)


def powers_of_two(axes: Axes, step: int = 4, clipped: tuple[int, int] | None = None) -> None:
    """Label the x axis with powers of two every ``step`` exponents.

    ``clipped`` names the exponents at which the outermost bars also count everything beyond them.
    """
    low, high = clipped or (None, None)
    sign = {low: r"\leq", high: r"\geq"}
    axes.tick_params(axis="x", labelsize=POWERS)
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda exponent, _: f"${sign.get(round(exponent), '')}2^{{{round(exponent)}}}$")
    )


def draw_chip(axes: Axes, x: float, y: float, name: str, **text_style: Any) -> Text:
    """Write a dtype's short name, such as ``"fp16"``, as a chip centred on (x, y) in the axes' own units.

    On the pale colour the name can be read on a dark page, too, where colours are turned around.
    """
    colour = dtype_colour(name)
    box = {"boxstyle": "round,pad=0.3", "facecolor": tint(colour, 0.25), "edgecolor": colour}
    style: dict[str, Any] = {
        "ha": "center",
        "va": "center",
        "fontsize": SMALL,
        "fontweight": "bold",
        **text_style,
    }
    return axes.text(x, y, name, color=INK, bbox=box, **style)
