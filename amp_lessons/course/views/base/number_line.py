"""The number line of a format, drawn the same way wherever it appears.

Its four zones, powers of two along it, bars over its binades, and dtypes as chips in their colours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MultipleLocator, NullLocator

from amp_lessons._base.drawing.style import INK, QUIET, SMALL, ZONES, dtype_colour
from amp_lessons._base.text.words import power
from amp_lessons.formats import FloatFormat


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


Fates = Mapping[str, Mapping[int, int]]


class FateBars:
    """One bar per binade from ``2**low`` to ``2**high``, of parts that can be moved.

    The outermost bars also count what lies beyond them.
    """

    def __init__(self, axes: Axes, low: int, high: int, seen: float = 0.0) -> None:
        """Draw bars of no height; what overflows will be as high as this part of the tallest, at least."""
        self._low, self._high, self._seen = low, high, seen
        edges, nothing = np.arange(low, high + 1), np.zeros(high - low)
        self._parts = {
            fate: axes.stairs(
                nothing, edges, fill=True, facecolor=zone.colour, edgecolor="white", hatch=zone.hatch
            )
            for fate, zone in ZONES.items()
        }
        self.artists = [*self._parts.values()]

    def name(self, axes: Axes, **names: str) -> None:
        """Draw a legend above ``axes``; ``names`` are those of fates that are called otherwise here."""
        labels = [names.get(fate, zone.name) for fate, zone in ZONES.items()]
        axes.legend(
            self.artists,
            labels,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1),
            ncols=len(labels),
            handlelength=1.4,
        )

    def update(self, fates: Fates, total: int, shift: float = 0) -> np.ndarray:
        """Move the bars to these counts, in % of ``total``, and return how high they are.

        Binades are moved ``shift`` to the right.
        """
        shares = {fate: self._shares(fates.get(fate, {}), total, shift) for fate in self._parts}
        lost, least = shares["overflowed"], self._seen * max(map(np.max, shares.values()))
        shares["overflowed"] = np.where(lost > 0, np.maximum(lost, least), 0)
        floor = np.zeros(self._high - self._low)
        for fate, part in self._parts.items():
            top = floor + shares[fate]
            part.set_data(top, baseline=floor)  # type: ignore[arg-type]
            floor = top
        return floor

    def _shares(self, counts: Mapping[int, int], total: int, shift: float) -> np.ndarray:
        shares = np.zeros(self._high - self._low)
        for binade, count in counts.items():
            column = min(max(math.floor(binade + shift), self._low), self._high - 1) - self._low
            shares[column] += 100 * count / max(total, 1)
        return shares


def draw_chip(axes: Axes, x: float, y: float, name: str, **text_style: Any) -> Text:
    """Write a dtype's short name, such as ``"fp16"``, as a chip centred on (x, y) in the axes' own units."""
    box = {"boxstyle": "round,pad=0.3", "facecolor": dtype_colour(name), "edgecolor": "none"}
    style: dict[str, Any] = {
        "ha": "center",
        "va": "center",
        "fontsize": SMALL,
        "fontweight": "bold",
        **text_style,
    }
    return axes.text(x, y, name, color="white", bbox=box, **style)
