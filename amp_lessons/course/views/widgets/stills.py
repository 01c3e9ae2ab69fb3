"""Pictures that need no controls: curves of runs, images in rows."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import GRID, INK, STROKES, house_style
from amp_lessons._base.text.words import MEASURED_MARK
from amp_lessons.course.views.base.view import View

_NAME_ABOVE = 22  # characters of a curve's name that stand in a line above the axes
_IN_A_ROW = 3  # names of curves there


class Still(View):
    """A picture with its caption, without anything to press: on a page it is no widget."""

    has_controls = False

    def __init__(self, picture: Picture, caption: str, alt: str, *, mark: str = "") -> None:
        """Show ``picture``; ``alt`` says in a phrase what it is of."""
        super().__init__([], alt)
        self.show(picture, caption, mark=mark)


def curves(
    runs: Mapping[str, Sequence[float]],
    caption: str,
    *,
    xlabel: str = "training step",
    ylabel: str = "loss",
    log: bool = False,
    marks: Mapping[int, str] | None = None,
    measured: bool = True,
) -> Still:
    """Show one curve per run: ``runs`` maps a run's name to its value at every step.

    ``marks`` maps steps, from 1, to words that stand at them, above the axis.
    """
    picture = curves_picture(runs, xlabel, ylabel, log, marks or {})
    alt = f"Curves of {ylabel} over {xlabel}: {', '.join(runs)}."
    return Still(picture, caption, alt, mark=MEASURED_MARK if measured else "")


def curves_picture(
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    log: bool = False,
    marks: Mapping[int, str] | None = None,
) -> Picture:
    """Draw each named sequence against its step, named above the axes; there are strokes for five.

    Raises:
        ValueError: for more curves than there are strokes, of which some would be missing.
    """
    if len(curves) > len(STROKES):
        raise ValueError(f"{len(curves)} curves, and there are strokes for {len(STROKES)}: draw fewer")
    figure = partial(_curves_figure, curves, xlabel, ylabel, log, marks or {})
    return Picture(figure(), narrow=lambda: Picture(figure(for_a_phone=True)))


def _curves_figure(
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    log: bool,
    marks: Mapping[int, str],
    *,
    for_a_phone: bool = False,
) -> Figure:
    names = [textwrap.fill(name, _NAME_BELOW if for_a_phone else _NAME_ABOVE) for name in curves]
    with house_style():
        lines = [len(name.splitlines()) for name in names]
        if for_a_phone:
            figure, axes, place = _above_a_legend(sum(lines))
        else:
            figure, axes, place = _below_a_legend(math.ceil(len(names) / _IN_A_ROW) * max(lines))
        for name, values, stroke in zip(names, curves.values(), STROKES[: len(curves)], strict=True):
            axes.plot(range(1, len(values) + 1), values, label=name, **stroke)
        if log:
            axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=5 if for_a_phone else "auto"))
        axes.set_xlabel(xlabel)
        axes.set_ylabel(ylabel)
        axes.grid(axis="y", color=GRID)
        axes.margins(x=0.01)
        for step, words in marks.items():
            _mark(axes, step, words)
        axes.legend(**place, handlelength=3.2)
    return figure


_NAME_BELOW = 32  # characters of a curve's name that stand in a line below the axes
_LINE, _AXES, _LABELS = 0.21, 2.4, 0.5  # inches high: a line of the legend, the axes, what is written below


def _below_a_legend(lines: int) -> tuple[Figure, Axes, dict[str, Any]]:
    """Return a figure with axes, and where above them, from the left, a legend of so many lines stands.

    What a narrow page leaves of a picture is its left.
    """
    height = _LABELS + _AXES + _LINE * lines + 0.15
    figure = Figure(figsize=(9, height))
    axes = figure.add_axes((0.085, _LABELS / height, 0.9, _AXES / height))
    return figure, axes, {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": _IN_A_ROW}


def _above_a_legend(lines: int) -> tuple[Figure, Axes, dict[str, Any]]:
    """Return a narrow figure with axes, and where below them a legend of so many lines stands."""
    below = _LINE * lines + 0.1
    height = _AXES + _LABELS + below + 0.1
    figure = Figure(figsize=(3.5, height))
    axes = figure.add_axes((0.21, (below + _LABELS) / height, 0.76, _AXES / height))
    corner = {"bbox_to_anchor": (0.02, below / height), "bbox_transform": figure.transFigure}
    return figure, axes, {"loc": "upper left", "borderaxespad": 0, "labelspacing": 0.3, **corner}


def _mark(axes: Axes, step: int, words: str) -> None:
    """Put a small triangle on the axis at a step, and words above it."""
    at = axes.get_xaxis_transform()
    axes.plot(step, 0.02, marker="^", color=INK, ms=7, transform=at)
    axes.annotate(words, (step, 0.02), (0, 7), xycoords=at, textcoords="offset points", ha="center")


def image_rows(rows: Mapping[str, Tensor], caption: str) -> Still:
    """Show the first 16 square images of each row: ``rows`` maps names to images (n, pixels), ink 0 to 1."""
    alt = f"Rows of small images: {', '.join(rows)}."
    return Still(image_rows_picture(rows), caption, alt, mark=MEASURED_MARK)


def image_rows_picture(rows: Mapping[str, Tensor]) -> Picture:
    """Draw the first 16 of each row's square images, (n, pixels) or (n, 1, side, side), ink from 0 to 1."""
    with house_style():
        figure = Figure(figsize=(9, 0.62 * len(rows) + 0.1))
        for at, (name, images) in enumerate(rows.items()):
            top = 1 - (at + 1) / len(rows)
            figure.text(0.01, top + 0.5 / len(rows), name, va="center")
            axes = figure.add_axes((0.25, top + 0.04 / len(rows), 0.74, 0.92 / len(rows)))
            side = math.isqrt(images[0].numel())
            squares = images[:16].detach().float().cpu().reshape(-1, side, side)
            row = torch.cat([torch.nn.functional.pad(square, (0, 1)) for square in squares], dim=1).numpy()
            axes.imshow(row, cmap="gray_r", vmin=0, vmax=1, aspect="equal")
            axes.set_axis_off()
    return Picture(figure)
