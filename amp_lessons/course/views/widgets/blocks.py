"""Put one outlier into a tensor and see what it costs, with a scale per tensor and with one per block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import INK, QUIET, SMALL, ZONES, house_style
from amp_lessons._base.text.words import relative, share
from amp_lessons.course.views.base.controls import ControlValue, Slider
from amp_lessons.course.views.base.number_line import two_to
from amp_lessons.course.views.base.view import View
from amp_lessons.formats import BLOCK_FORMATS, FORMATS, ScaledFormat, ScalingError, per_tensor, scaling_error

LARGEST_EXPONENT = 24  # beyond 2^20 even nvfp4, which scales twice, loses the rest
SCALED_FORMATS = (
    per_tensor(FORMATS["fp8_e4m3"]),
    per_tensor(FORMATS["fp4_e2m1"]),
    BLOCK_FORMATS["mxfp4"],
    BLOCK_FORMATS["nvfp4"],
)


class OutlierView(View):
    """One element of a matrix grows; the map shows which elements each format loses."""

    exponent = ControlValue[int]("_slider", "The exponent of the outlier that the slider stands on.")

    def __init__(
        self, matrix: Tensor, exponent: int = 10, scaled_formats: Sequence[ScaledFormat] = SCALED_FORMATS
    ) -> None:
        """Show ``matrix`` (rows, columns; float32) with 2^``exponent`` in its middle, in each format."""
        if matrix.dim() != 2 or not matrix.numel():
            raise ValueError(f"Give a matrix (rows, columns), not a tensor of shape {tuple(matrix.shape)}.")
        self._matrix = matrix.detach().clone()
        self._place = (matrix.shape[0] // 2, matrix.shape[1] // 2)
        self._formats = scaled_formats
        self._slider = Slider("Outlier", 0, LARGEST_EXPONENT, exponent, words=two_to)
        super().__init__([self._slider], alt="Maps of a matrix: which elements each format turns into zero.")
        self._refresh()
        self.follow(self._refresh, self._slider)

    def _refresh(self) -> None:
        matrix = self._matrix
        matrix[self._place] = 2.0**self.exponent
        errors = {each.name: scaling_error(matrix, each) for each in self._formats}
        words = ", ".join(
            f"{name} {share(int(error.lost.sum()), matrix.numel())}" for name, error in errors.items()
        )
        self.show(
            outlier_picture(errors, self._place),
            f"One element of {matrix.numel():,} is {two_to(self.exponent)}. These become zero: {words}.",
        )


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
        figure.text(left / 9, 0.08 / HEIGHT_IN, zones, fontsize=SMALL, color=QUIET)
    return Picture(figure)


def _draw_map(axes: Axes, lost: np.ndarray, outlier: tuple[int, int]) -> None:
    colours = np.array([ZONES["normal"].tint, to_rgb(ZONES["underflowed"].colour)])
    axes.imshow(colours[lost.astype(int)], interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    row, column = outlier
    axes.plot([column], [row], marker="o", ms=11, mfc="none", mec=INK, mew=1.5)
    axes.plot([column], [row], marker="s", ms=2.5, color=INK)  # the ring holds its neighbours as well


def _describe(axes: Axes, error: ScalingError) -> None:
    words = (
        f"{share(int(error.lost.sum()), error.lost.numel())} lost\n"
        f"median error {relative(error.median_relative_error)}\n"
        f"{error.bits_per_element:.3g} bits per element"
    )
    axes.text(0, -0.04, words, transform=axes.transAxes, va="top", fontsize=9, linespacing=1.3)
