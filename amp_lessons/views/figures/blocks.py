"""What one outlier does to a tensor under different scales: a map of the elements that are lost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.formats import ScalingError
from amp_lessons.text.words import relative, share
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import INK, QUIET, ZONES, house_style

HEIGHT_IN, PANEL_IN, GAP_IN = 3.25, 2.0, 0.2


def outlier_picture(errors: Mapping[str, ScalingError], outlier: tuple[int, int]) -> Picture:
    """Draw one map per format: which elements of a matrix (rows, columns) became zero."""
    left = (9 - len(errors) * (PANEL_IN + GAP_IN) + GAP_IN) / 2
    with house_style():
        figure = Figure(figsize=(9, HEIGHT_IN))
        for i, (name, error) in enumerate(errors.items()):
            x = (left + i * (PANEL_IN + GAP_IN)) / 9
            axes = figure.add_axes((x, 0.95 / HEIGHT_IN, PANEL_IN / 9, PANEL_IN / HEIGHT_IN))
            _draw_map(axes, error.lost.cpu().numpy(), outlier)
            axes.set_title(name, fontsize=10.5)
            _describe(axes, error)
        zones = f"coloured: {ZONES['underflowed'].name}   light: survives   black, in the ring: the outlier"
        figure.text(left / 9, 0.08 / HEIGHT_IN, zones, fontsize=8.5, color=QUIET)
    return Picture(figure)


def _draw_map(axes: Axes, lost: np.ndarray, outlier: tuple[int, int]) -> None:
    colours = np.array([ZONES["normal"].tint, _rgb(ZONES["underflowed"].colour)])
    axes.imshow(colours[lost.astype(int)], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    row, column = outlier
    axes.plot([column], [row], marker="o", ms=11, mfc="none", mec=INK, mew=1.5)
    axes.plot([column], [row], marker="s", ms=2.5, color=INK)  # the ring holds its neighbours as well


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def _describe(axes: Axes, error: ScalingError) -> None:
    words = (
        f"{share(int(error.lost.sum()), error.lost.numel())} lost\n"
        f"median error {relative(error.median_relative_error)}\n"
        f"{error.bits_per_element:.3g} bits per element"
    )
    axes.text(0, -0.04, words, transform=axes.transAxes, va="top", fontsize=9, linespacing=1.3)
