"""The census of gradients as a picture: where they lie on a number line, and what becomes of them."""

from __future__ import annotations

import math

import numpy as np
from matplotlib.figure import Figure

from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling import Census
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ZONES, house_style
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
            draw_zones(axes, census.dtype, LOW, HIGH)
            powers_of_two(axes, step=8, clipped=(LOW, HIGH))
            axes.set_ylim(0, headroom * max(_shares(census)[0].max(initial=0), 1.0))
            axes.set_xlabel(
                f"size of the gradient × loss scale, on the number line of {dtype_name(census.dtype)}"
            )
            axes.set_ylabel("% of gradients that are not zero")
            edges = np.arange(LOW, HIGH + 1)
            nothing = np.zeros(HIGH - LOW)
            self._bars = {
                fate: axes.stairs(
                    nothing, edges, fill=True, facecolor=zone.colour, edgecolor="white", hatch=zone.hatch
                )
                for fate, zone in ZONES.items()
            }
        super().__init__(figure, [*self._bars.values()])
        self.update(census)

    def update(self, census: Census) -> None:
        """Move the bars to ``census``, which must be of the dtype that the picture was made for."""
        total, by_fate = _shares(census)
        floor = np.zeros_like(total)
        for fate, bars in self._bars.items():
            bars.set_data(floor + by_fate[fate], baseline=floor)  # type: ignore[arg-type]
            floor = floor + by_fate[fate]


def _shares(census: Census) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return, per binade in view after scaling, the % of all that are not zero: in total and by fate."""
    by_fate = {fate: np.zeros(HIGH - LOW) for fate in ZONES}
    shift, percent = math.log2(census.scale), 100 / max(census.at_stake, 1)
    for fate, shares in by_fate.items():
        for binade, count in census.fates.get(fate, {}).items():
            column = min(max(math.floor(binade + shift), LOW), HIGH - 1) - LOW
            shares[column] += count * percent
    return np.sum(list(by_fate.values()), axis=0), by_fate
