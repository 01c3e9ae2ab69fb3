"""Two training curves that grow, and how far they are apart."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from amp_lessons.material.race import Race
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import GRID, INK, ZONES, dtype_colour, house_style

# Decades of relative difference: from fp32's last digit to a run that has nothing to do with the other
_LEAST_DIFFERENCE, _MOST_DIFFERENCE = 1e-7, 1.0


class RacePicture(Picture):
    """Both losses over the steps, and below them their relative difference; the curves grow by ``update``."""

    def __init__(self, race: Race) -> None:
        """Draw axes for all steps of ``race``, and the curves as far as they have come."""
        with house_style():
            figure = Figure(figsize=(9, 4.2))
            above, below = figure.subplots(
                2,
                1,
                sharex=True,
                gridspec_kw={"height_ratios": [3, 1.2], "left": 0.09, "right": 0.985, "top": 0.96}
                | {"bottom": 0.12, "hspace": 0.12},
            )
            self._curves = self._draw_losses(above, race)
            (self._difference,) = below.plot([], [], color=INK, lw=1.2)
            below.set_yscale("log", nonpositive="mask")
            below.set_ylim(_LEAST_DIFFERENCE, _MOST_DIFFERENCE)
            below.set_xlim(0, race.task.steps + 1)
            below.set(ylabel="relative\ndifference", xlabel="training step")
            below.grid(axis="y", color=GRID)
        super().__init__(figure, moving=[*self._curves, self._difference])
        self.update(race)

    @staticmethod
    def _draw_losses(axes: Axes, race: Race) -> tuple[Line2D, Line2D, Line2D]:
        # One curve may lie on top of the other, which is the point: width and dashes keep both in sight.
        (fp32,) = axes.plot([], [], color=dtype_colour("fp32"), lw=5, alpha=0.35, label="fp32")
        precision = race.amp.precision
        (amp,) = axes.plot(
            [], [], color=dtype_colour(precision), lw=1.8, ls=(0, (5, 1.5)), label=f"{precision} autocast"
        )
        overflow = ZONES["overflowed"].colour
        (skipped,) = axes.plot([], [], "X", color=overflow, ms=9, label="overflow: step skipped")
        axes.set_ylim(0, 1.15 * race.task.chance_loss)
        axes.set_ylabel("loss")
        axes.grid(axis="y", color=GRID)
        axes.legend(loc="upper right", handlelength=3.2)
        return fp32, amp, skipped

    def update(self, race: Race) -> None:
        """Let the curves grow to where ``race`` has come."""
        steps = range(1, race.step + 1)
        fp32, amp, skipped = self._curves
        fp32.set_data(steps, race.fp32.losses[: race.step])
        amp.set_data(steps, race.amp.losses)
        # a skipped step may well have had no finite loss: mark it at the foot of the axes
        heights = [loss if math.isfinite(loss := race.amp.losses[i]) else 0.0 for i in race.amp.skipped]
        skipped.set_data([i + 1 for i in race.amp.skipped], heights)
        self._difference.set_data(steps, race.differences)
