"""The error of a sum of products against its length, for an accumulator that a learner picks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from amp_lessons.views.base.lines import MovingLines, MovingMark
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, PAPER, QUIET, ZONES, house_style
from amp_lessons.views.figures.zones import powers_of_ten

LEAST_ERROR, MOST_ERROR = 1e-8, 1.5
_DASHES = ["-", (0, (4, 2)), (0, (1, 1.5))]


class AccumulatorPicture(Picture):
    """Fixed lines to compare with, and one that moves, with a mark at the length in question."""

    def __init__(
        self,
        lengths: Sequence[int],
        fixed: Mapping[str, Sequence[float]],
        reported: tuple[str, int, float],
    ) -> None:
        """Draw the ``fixed`` errors by name, one per length; ``reported`` is (name, length, error)."""
        self._lengths = list(lengths)
        with house_style():
            figure = Figure(figsize=(9, 3.8))
            axes = figure.add_axes((0.1, 0.14, 0.57, 0.82))
            self._draw_axes(axes)
            for dashes, (name, errors) in zip(_DASHES, fixed.items(), strict=True):
                axes.plot(lengths, errors, color=QUIET, ls=dashes, lw=1.8, label=name)
            name, length, error = reported
            colour = ZONES["underflowed"].colour
            axes.plot([length], [error], "*", ms=13, color=colour, mec=PAPER, label=name, zorder=4)
            self._line = MovingLines(axes, edgecolor=ACCENT, lw=3)
            self._mark = MovingMark(axes, facecolor=INK, edgecolor=PAPER)
            _explain(axes)
        super().__init__(figure, [self._line.artist, self._mark.artist])

    def _draw_axes(self, axes: Axes) -> None:
        axes.set(xscale="log", yscale="log", ylim=(LEAST_ERROR, MOST_ERROR))
        axes.set_xlim(self._lengths[0] / 1.2, self._lengths[-1] * 1.2)
        axes.set(xlabel="inner dimension: products per sum", ylabel="relative error of the sums")
        axes.set_xticks(self._lengths, [f"{length:,}" for length in self._lengths], fontsize=9)
        axes.xaxis.set_minor_locator(NullLocator())
        powers_of_ten(axes.yaxis)
        axes.grid(color=GRID)

    def update(self, errors: Sequence[float], length: int) -> None:
        """Move the line to ``errors``, one per length, and the mark to ``length`` on it."""
        within = [min(max(error, LEAST_ERROR), MOST_ERROR) for error in errors]
        self._line.update(list(zip(self._lengths, within, strict=True)))
        self._mark.update((length, within[self._lengths.index(length)]))


def _explain(axes: Axes) -> None:
    """Name the lines beside the picture, those first that move."""
    picked = Line2D([], [], color=ACCENT, lw=3, marker="D", ms=8, mfc=INK, mec=PAPER, label="what you picked")
    drawn, _ = axes.get_legend_handles_labels()
    axes.legend(
        handles=[picked, *drawn], loc="center left", bbox_to_anchor=(1.01, 0.5), handlelength=2.6, fontsize=9
    )
