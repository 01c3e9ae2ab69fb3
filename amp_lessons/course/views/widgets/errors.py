"""What rounding does to sums: of matrix products, and of the small steps that training takes."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import GRID, dtype_colour, house_style
from amp_lessons._base.text.words import number, power, relative
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.stills import Still, curves_picture
from amp_lessons.formats import FORMATS, repeated_update

METHOD_NAMES = {
    "plain": "plain",
    "fp32_copy": "fp32 copy",
    "kahan": "Kahan",
    "stochastic": "stochastic rounding",
}
# fp32 is what the others are compared with; a scale alone, as e8m0 is, holds no weight
WEIGHT_FORMATS = [name for name, each in FORMATS.items() if each.signed and name != "fp32"]
SMALLEST_UPDATE = -20
_weights = functools.lru_cache(maxsize=128)(repeated_update)  # a slider comes by again


def product_errors(
    inner_dimensions: Sequence[int], errors: Mapping[tuple[str, str], Sequence[float]]
) -> Still:
    """Show errors of matrix products against the inner dimension.

    ``errors`` maps (operands, accumulator), both names of formats, to one relative error per inner dimension.
    """
    lines = [
        f"{operands} with sums in {accumulator}: {relative(line[0])} → {relative(line[-1])}"
        for (operands, accumulator), line in errors.items()
    ]
    span = f"From {inner_dimensions[0]} to {inner_dimensions[-1]} products per sum"
    alt = "Relative error of a matrix product against its inner dimension."
    return Still(errors_picture(inner_dimensions, errors), f"{span}. {'; '.join(lines)}.", alt)


class UpdateView(View):
    """The same small update, added to a weight of 1 again and again, in four ways of keeping the weight."""

    exponent = ControlValue[int]("_slider", "The exponent of the update that the slider stands on.")
    format = ControlValue[str]("_format", "The name of the format that stores the weight.")

    def __init__(self, exponent: int = -10, format: str = "bf16", steps: int = 300) -> None:
        """Add 2^``exponent`` to 1, ``steps`` times, the weight being stored in the format of that name."""
        self._steps = steps
        self._slider = Slider("Update", SMALLEST_UPDATE, 0, exponent, words=_in_words)
        self._format = dropdown("weight kept in", WEIGHT_FORMATS, format)
        super().__init__([self._slider, row(self._format)], alt="A weight over the steps, kept in four ways.")
        self._refresh()
        self.follow(self._refresh, self._slider, self._format)

    def _refresh(self) -> None:
        update = 2.0**self.exponent
        self.begin_work(f"Adding {_in_words(self.exponent)} to a weight in {self.format}")
        weights = _weights(update, FORMATS[self.format], self._steps)
        picture = curves_picture(
            {METHOD_NAMES[method]: line for method, line in weights.items()}, "step", "weight"
        )
        ends = ", ".join(f"{METHOD_NAMES[method]} {line[-1]:.6g}" for method, line in weights.items())
        exact = 1 + self._steps * update
        self.show(
            picture,
            f"1 plus {self._steps} times {power(2, self.exponent)} is {exact:.6g}. "
            f"A weight kept in {self.format} arrives at: {ends}.",
        )


def _in_words(exponent: int) -> str:
    return f"{power(2, exponent)} = {number(2.0**exponent, 3)}"


def errors_picture(
    inner_dimensions: Sequence[int], errors: Mapping[tuple[str, str], Sequence[float]]
) -> Picture:
    """Draw relative errors against the inner dimension, both logarithmic.

    ``errors`` maps (format of the operands, format of the accumulator) to one error per inner dimension.
    Colour says the operands; a line is solid for an fp32 accumulator and dashed for any other.
    """
    with house_style():
        figure = Figure(figsize=(9, 3.8))
        axes = figure.add_axes((0.085, 0.14, 0.56, 0.82))
        axes.set(
            xscale="log", yscale="log", xlabel="inner dimension: products per sum", ylabel="relative error"
        )
        axes.set_xticks(inner_dimensions, [str(k) for k in inner_dimensions])
        axes.minorticks_off()
        for (operands, accumulator), line in errors.items():
            wide = accumulator == "fp32"
            dashes = (
                {"ls": "-", "marker": "o"} if wide else {"ls": (0, (4, 2)), "marker": "s", "mfc": "white"}
            )
            axes.plot(inner_dimensions, line, color=dtype_colour(operands), lw=2.2, ms=6, **dashes)
        axes.grid(color=GRID)
        _name_ends(axes, inner_dimensions[-1], errors)
    return Picture(figure)


def _name_ends(axes: Axes, at: int, errors: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """Write at the right end of each line what it is; lines that end together have one name."""
    named: list[tuple[float, str, str]] = []
    for (operands, accumulator), line in sorted(errors.items(), key=lambda item: item[1][-1]):
        label = f"{operands}, sums in {accumulator}"
        if named and line[-1] < 1.2 * named[-1][0]:
            label = f"{named[-1][1]}; {label}"
            named.pop()
        named.append((line[-1], label, operands))
    for error, label, operands in named:
        bold: dict[str, Any] = {"color": dtype_colour(operands), "fontweight": "bold", "va": "center"}
        axes.annotate(label, (at, error), (9, 0), "data", "offset points", annotation_clip=False, **bold)
