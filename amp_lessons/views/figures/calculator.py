"""The peak of one training step by category, beside the memory of a GPU."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.measure import Footprint
from amp_lessons.text.words import memory
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, INK, KIND_COLOURS, ZONES, house_style
from amp_lessons.views.figures.memory import draw_peak

_LEFT, _RIGHT = 0.17, 0.9


def calculator_picture(found: Footprint, gpu: str, usable_bytes: int, ranks: int = 1) -> Picture:
    """Draw the whole peak, of each rank, against what ``gpu`` has for tensors, and each category below it."""
    kinds = [kind for kind in KIND_COLOURS if kind in found.at_peak]
    with house_style():
        height = 1.0 + 0.26 * len(kinds)
        figure = Figure(figsize=(9, height))
        above = figure.add_axes((_LEFT, 1 - 0.72 / height, _RIGHT - _LEFT, 0.42 / height))
        below = figure.add_axes((_LEFT, 0.1 / height, _RIGHT - _LEFT, 0.26 * len(kinds) / height))
        _draw_whole(above, found, gpu, usable_bytes)
        _label(above, 0, "peak of the step" if ranks == 1 else f"peak, each of {ranks:,}")
        _draw_kinds(below, kinds, found)
        below.set_xlim(above.get_xlim())  # one scale, so that the parts add up to the whole
    return Picture(figure)


def _draw_whole(axes: Axes, found: Footprint, gpu: str, usable_bytes: int) -> None:
    """Draw the stacked bar; what lies beyond the GPU's memory is hatched as an overflow is."""
    longest = 1.02 * max(found.peak_bytes, min(usable_bytes, 4 * found.peak_bytes))
    draw_peak(axes, 0, found)
    overflow = ZONES["overflowed"]
    if found.peak_bytes > usable_bytes:
        excess = found.peak_bytes - usable_bytes
        style: dict[str, Any] = {
            "facecolor": "none",
            "edgecolor": overflow.colour,
            "hatch": overflow.hatch,
            "linewidth": 0,
        }
        axes.barh(0, excess, left=usable_bytes, height=0.8, **style)
    if usable_bytes <= longest:
        axes.axvline(usable_bytes, color=INK, lw=1.4, ls=(0, (4, 2)), clip_on=False)
        side = "left" if usable_bytes < longest / 2 else "right"
        axes.text(usable_bytes, 0.72, f" {gpu}: {memory(usable_bytes)} ", ha=side, va="bottom", fontsize=8.5)
    else:
        axes.text(
            longest, 0.72, f"{gpu}: {memory(usable_bytes)}, far to the right →", ha="right", fontsize=8.5
        )
    axes.set_ylim(-0.55, 0.7)
    axes.set_xlim(0, longest)
    _bare(axes)


def _draw_kinds(axes: Axes, kinds: list[str], found: Footprint) -> None:
    for y, kind in enumerate(kinds):
        nbytes = found.at_peak[kind]
        axes.barh(y, nbytes, height=0.72, facecolor=KIND_COLOURS[kind])
        axes.text(nbytes, y, f" {memory(nbytes)}", va="center", fontsize=8.5, color=INK)
        _label(axes, y, kind)
    axes.set_ylim(len(kinds) - 0.4, -0.6)
    _bare(axes)


def _label(axes: Axes, y: float, text: str) -> None:
    axes.text(-0.01, y, text, ha="right", va="center", fontsize=9, transform=axes.get_yaxis_transform())


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines["bottom"].set_visible(False)
    axes.spines["left"].set_color(GRID)
