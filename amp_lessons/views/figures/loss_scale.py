"""The census of gradients as a picture: where they lie on a number line, and what becomes of them."""

from __future__ import annotations

import math

from matplotlib.figure import Figure

from amp_lessons.formats import FORMATS
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import Census
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import house_style
from amp_lessons.views.figures.fates import FateBars
from amp_lessons.views.figures.zones import draw_zones, powers_of_two

LOW, HIGH = -64, 48  # exponents in view: real gradients at 2^0, and what a scale of 2^40 makes of them


class CensusPicture(Picture):
    """A histogram of gradients on the number line of ``dtype``, coloured by what becomes of each value."""

    def __init__(self, census: Census, headroom: float = 1.35) -> None:
        """Draw ``census``; the y axis leaves ``headroom`` above its tallest bar for the censuses to come."""
        self.dtype = census.dtype
        with house_style():
            figure = Figure(figsize=(9, 3.5))
            axes = figure.add_axes((0.065, 0.15, 0.91, 0.8))
            draw_zones(axes, FORMATS[dtype_name(census.dtype)], LOW, HIGH)
            powers_of_two(axes, step=8, clipped=(LOW, HIGH))
            axes.set_xlabel(
                f"size of the gradient × loss scale, on the number line of {dtype_name(census.dtype)}"
            )
            axes.set_ylabel("% of gradients that are not zero")
            self._bars = FateBars(axes, LOW, HIGH)
            axes.set_ylim(0, headroom * max(self.update(census), 1.0))
        super().__init__(figure, self._bars.artists)

    def update(self, census: Census) -> float:
        """Move the bars to ``census``, of the dtype that the picture was made for; return the tallest."""
        heights = self._bars.update(census.fates, census.at_stake, math.log2(census.scale))
        return float(heights.max(initial=0))
