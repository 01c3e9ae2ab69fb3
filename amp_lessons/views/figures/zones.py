"""The number line of a format, drawn the same way wherever it appears: powers of two, and its four zones."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator

from amp_lessons.formats import FloatFormat
from amp_lessons.text.words import power
from amp_lessons.views.base.style import INK, QUIET, ZONES


def zone_edges(number_format: FloatFormat) -> tuple[float, float, float]:
    """Return where the zones of a format meet, as exponents of two.

    Below the first edge values round to zero (half the smallest subnormal), up to the second they are
    subnormal, from the third on they overflow.
    """
    floor = number_format.smallest_subnormal or number_format.smallest_normal
    return math.log2(floor) - 1, math.log2(number_format.smallest_normal), math.log2(number_format.max)


def draw_zones(axes: Axes, number_format: FloatFormat, low: int, high: int, *, named: bool = True) -> None:
    """Tint the zones of a format between ``2**low`` and ``2**high`` on an axis of exponents.

    If ``named``, those that are wide enough bear their names.
    """
    axes.set_xlim(low, high)
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
                color=INK,
                fontweight="bold",
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2},
            )
    for edge in edges[1:-1]:
        if low < edge < high:
            axes.axvline(edge, color=QUIET, lw=0.8)


def powers_of_ten(axis: Axis) -> None:
    """Label a logarithmic axis with powers of ten, all of them written alike."""
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: power(10, round(math.log10(value)))))


def powers_of_two(axes: Axes, step: int = 4, clipped: tuple[int, int] | None = None) -> None:
    """Label the x axis with powers of two every ``step`` exponents.

    ``clipped`` names the exponents at which the outermost bars also count everything beyond them.
    """
    low, high = clipped or (None, None)
    sign = {low: r"\leq", high: r"\geq"}
    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(
        FuncFormatter(lambda exponent, _: f"${sign.get(round(exponent), '')}2^{{{round(exponent)}}}$")
    )
