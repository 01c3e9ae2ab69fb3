"""Put one outlier into a tensor and see what it costs, with a scale per tensor and with one per block."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from amp_lessons.formats import BLOCK_FORMATS, FORMATS, ScaledFormat, per_tensor, scaling_error
from amp_lessons.text.words import power, share
from amp_lessons.views.base.controls import ControlValue, Slider
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.blocks import outlier_picture

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
        self._slider = Slider("Outlier", 0, LARGEST_EXPONENT, exponent, words=_in_words)
        super().__init__([self._slider], alt="Maps of a matrix: which elements each format turns into zero.")
        self._refresh()
        self._slider.observe(self._refresh, "value")

    def _refresh(self, _change: object = None) -> None:
        matrix = self._matrix
        matrix[self._place] = 2.0**self.exponent
        errors = {each.name: scaling_error(matrix, each) for each in self._formats}
        words = ", ".join(
            f"{name} {share(int(error.lost.sum()), matrix.numel())}" for name, error in errors.items()
        )
        self.show(
            outlier_picture(errors, self._place),
            f"One element of {matrix.numel():,} is {_in_words(self.exponent)}. These become zero: {words}.",
        )


def _in_words(exponent: int) -> str:
    return f"{power(2, exponent)} = {2**exponent:,}"
