"""What bounds an operation: the roof that products and memory make, and where operations lie under it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from amp_lessons.formats import FORMATS
from amp_lessons.measure import Promise, Rate, Roof
from amp_lessons.text.words import flop_rate, three_digits
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, INK, PAPER, QUIET, dtype_colour, house_style

MARKERS = {"matrix product": "o", "attention": "s", "LayerNorm": "^", "addition": "P"}
_STROKES = ("-", (0, (8, 2)), (0, (5, 2)), (0, (1.5, 1.5)), "-.")
DASHES = dict(zip(FORMATS, itertools.cycle(_STROKES)))
_LEFT, _RIGHT = 0.1, 0.765


def roofline_picture(
    roofs: Sequence[Roof],
    source: str,
    operations: Sequence[Rate] = (),
    product: Rate | None = None,
    pair: Sequence[Promise] = (),
) -> Picture:
    """Draw roofs, operations under them, and as a star the one ``product`` that is played with.

    ``source`` says where the numbers come from. ``pair`` is one product in two precisions: an arrow leads
    from the first place to the second.
    """
    points = [*operations, *([product] if product else [])]
    with house_style():
        figure = Figure(figsize=(9, 4.6))
        axes = figure.add_axes((_LEFT, 0.125, _RIGHT - _LEFT, 0.85))
        axes.set(xscale="log", yscale="log", xlabel="FLOP per byte moved", ylabel="FLOP per second")
        low, high = _intensities(roofs, points)
        # Where memory bounds, all precisions share one line: the widest lies below
        for width, roof in zip(np.linspace(4.5, 2, len(roofs)), roofs, strict=True):
            _draw_roof(axes, roof, low, high, width)
        for rate in operations:
            _draw_point(axes, rate)
        if product:
            _draw_product(axes, product)
        if pair:
            _draw_pair(axes, *pair)
        axes.set_xlim(low, high)
        axes.grid(color=GRID)
        axes.set_axisbelow(True)
        axes.set_ylim(top=4 * axes.get_ylim()[1])
        _name_roofs(axes, roofs)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short_rate(y)))
        _explain(axes, source)
        if operations:
            _legend(axes, operations)
    return Picture(figure)


def _intensities(roofs: Sequence[Roof], points: Sequence[Rate]) -> tuple[float, float]:
    """Return the span of the axis: every point and every ridge, with some of the flat roofs."""
    found = [rate.intensity for rate in points] + [roof.ridge_point for roof in roofs]
    return min(0.06, *found) / 1.6, 3 * max(*found, 100)


def _draw_roof(axes: Axes, roof: Roof, low: float, high: float, width: float) -> None:
    colour = dtype_colour(roof.precision)
    xs = [low, roof.ridge_point, high]
    ys = [low * roof.bytes_per_s, roof.flop_per_s, roof.flop_per_s]
    axes.plot(xs, ys, color=colour, lw=width, ls=DASHES[roof.precision], label=roof.precision)
    axes.plot(roof.ridge_point, roof.flop_per_s, "D", color=PAPER, mec=colour, mew=1.8, ms=7, zorder=3)


def _name_roofs(axes: Axes, roofs: Sequence[Roof]) -> None:
    """Name each roof at its right end; names that would touch are moved apart."""
    bottom, top = np.log10(axes.get_ylim())
    height = 0.085 * (top - bottom)  # of two lines of text, in decades
    place = -np.inf
    for roof in sorted(roofs, key=lambda roof: roof.flop_per_s):
        place = max(place + height, np.log10(roof.flop_per_s))
        words = f"{roof.precision} {flop_rate(roof.flop_per_s)}\nridge at {three_digits(roof.ridge_point)}"
        style: dict[str, Any] = {"va": "center", "fontsize": 8.5, "color": INK, "linespacing": 1.1}
        transform = axes.get_yaxis_transform()
        axes.plot(
            [1.012, 1.035],
            [10**place] * 2,
            color=dtype_colour(roof.precision),
            lw=5,
            clip_on=False,
            transform=transform,
            solid_capstyle="butt",
        )
        axes.text(1.045, 10**place, words, transform=transform, **style)


def _explain(axes: Axes, source: str) -> None:
    """Write what bounds where, and where the numbers come from."""
    style: dict[str, Any] = {"fontsize": 9, "color": QUIET, "transform": axes.transAxes, "va": "top"}
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
    axes.text(0.015, 0.985, source, **style, fontweight="bold", bbox=paper)
    axes.text(0.015, 0.87, "where the roof slopes,\nmemory is the bound", **style)
    axes.text(0.985, 0.09, "where it is flat, arithmetic is the bound", ha="right", **style)


def _short_rate(flop_per_s: float) -> str:
    """Return a power of ten with its unit: ``100 G``, ``1 T``, ``1,000 T``."""
    if flop_per_s >= 1e12:
        return f"{flop_per_s / 1e12:,.0f} T"
    return f"{flop_per_s / 1e9:g} G"


def _draw_point(axes: Axes, rate: Rate) -> None:
    style: dict[str, Any] = {
        "marker": MARKERS.get(rate.operation, "o"),
        "ms": 9,
        "mec": INK,
        "mew": 0.6,
        "zorder": 4,
    }
    axes.plot(rate.intensity, rate.flop_per_s, ls="", color=dtype_colour(rate.precision), **style)


def _draw_product(axes: Axes, product: Rate) -> None:
    style: dict[str, Any] = {"marker": "*", "ms": 19, "mec": INK, "mew": 1.2, "zorder": 5}
    axes.plot(product.intensity, product.flop_per_s, ls="", color=dtype_colour(product.precision), **style)
    axes.annotate(
        f"{product.size:,} × {product.size:,}",
        (product.intensity, product.flop_per_s),
        xytext=(0, 12),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        fontweight="bold",
        zorder=6,
    )


def _draw_pair(axes: Axes, first: Promise, second: Promise) -> None:
    """Mark where the roof puts one product in two precisions, and join the two by an arrow."""
    places = [(each.intensity, each.flop_per_s) for each in (first, second)]
    arrow = {"arrowstyle": "-|>", "color": INK, "lw": 1.6, "connectionstyle": "arc3,rad=-0.5", "shrinkB": 6}
    axes.annotate("", places[1], places[0], arrowprops=arrow, zorder=5)
    for each, place in zip((first, second), places, strict=True):
        axes.plot(*place, "o", color=dtype_colour(each.precision), mec=INK, mew=1, ms=9, zorder=6)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "color": INK}
    before = f"{first.size:,} × {first.size:,} in {first.precision}"
    after = f"in {second.precision}: half the bytes,\ntwice the FLOP per byte"
    axes.annotate(before, places[0], xytext=(9, -6), va="top", **style)
    axes.annotate(after, places[1], xytext=(-12, 16), ha="right", **style)


def _legend(axes: Axes, operations: Sequence[Rate]) -> None:
    names = dict.fromkeys(rate.operation for rate in operations)
    style: dict[str, Any] = {"ls": "", "color": PAPER, "mec": INK, "ms": 8}
    handles = [Line2D([], [], marker=MARKERS.get(name, "o"), label=name, **style) for name in names]
    handles += [
        Line2D([], [], marker="*", label="your product", **{**style, "ms": 13}),
        Line2D([], [], marker="D", label="ridge point", **{**style, "mec": QUIET, "mew": 1.8, "ms": 6}),
    ]
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(1.01, 0), fontsize=8.5, handlelength=1.2)
