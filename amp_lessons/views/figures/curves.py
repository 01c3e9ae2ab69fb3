"""Curves of a training run, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, STROKES, house_style


def curves_picture(
    curves: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, log: bool = False
) -> Picture:
    """Draw each named sequence against its step, named beside the axes."""
    with house_style():
        figure = Figure(figsize=(9, 3.4))
        axes = figure.add_axes((0.085, 0.15, 0.66, 0.8))
        for (name, values), stroke in zip(curves.items(), STROKES, strict=False):
            axes.plot(range(1, len(values) + 1), values, label=name, **stroke)
        if log:
            axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(axis="y", color=GRID)
        axes.margins(x=0.01)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.2)
    return Picture(figure)
