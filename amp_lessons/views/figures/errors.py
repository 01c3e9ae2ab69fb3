"""How the error of a matrix product grows with the number of terms that each sum adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, dtype_colour, house_style


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
        # Lines on top of each other stay in sight: the first ones are the widest
        widths = np.linspace(6, 2, len(errors))
        for width, ((operands, accumulator), line) in zip(widths, errors.items(), strict=True):
            wide = accumulator == "fp32"
            label = f"{operands}, sums in {accumulator}"
            dashes = (
                {"ls": "-", "marker": "o"} if wide else {"ls": (0, (4, 2)), "marker": "s", "mfc": "white"}
            )
            axes.plot(
                inner_dimensions, line, label=label, color=dtype_colour(operands), lw=width, ms=6, **dashes
            )
        axes.grid(color=GRID)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=3.2)
    return Picture(figure)
