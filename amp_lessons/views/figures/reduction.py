"""The error of a mean over ranks against their number, and the way on which few of them are added up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator, NullLocator

from amp_lessons.parallel import Addition, Growth
from amp_lessons.views.base.lines import MovingLines, MovingMark, Points
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, PAPER, QUIET, dtype_colour, house_style, tint
from amp_lessons.views.figures.zones import powers_of_ten

LEAST_ERROR, MOST_ERROR = 1e-8, 2.0
MOST_DRAWN = 8  # ranks whose additions are drawn
_DASHES = ("-", (0, (3, 2)), (0, (1, 1.5)))

Combination = tuple[str, str]
"""An algorithm and the short name of a dtype."""


class ReductionPicture(Picture):
    """One line of errors for each algorithm and dtype, beside the additions of few ranks."""

    def __init__(self, ranks: Sequence[int], algorithms: Sequence[str], dtypes: Sequence[str]) -> None:
        """Draw the axes for these numbers of ranks, and lines that go nowhere yet."""
        with house_style():
            figure = Figure(figsize=(9, 4.1))
            axes = figure.add_axes((0.1, 0.13, 0.5, 0.72))
            _draw_errors(axes, ranks)
            self._picked = MovingLines(axes, edgecolor=tint(INK, 0.2), lw=9, zorder=2.5)
            self._guide = MovingLines(axes, edgecolor=QUIET, lw=1.2, ls=_DASHES[-1])
            self._lines = {
                (algorithm, dtype): MovingLines(axes, edgecolor=dtype_colour(dtype), lw=2, ls=dashes)
                for algorithm, dashes in zip(algorithms, _DASHES, strict=False)
                for dtype in dtypes
            }
            self._mark = MovingMark(axes, facecolor=INK, edgecolor=PAPER)
            _explain(axes, algorithms, dtypes)
            way = figure.add_axes((0.68, 0.13, 0.3, 0.72))
            _draw_way(way)
            self._stays = MovingLines(way, edgecolor=QUIET, lw=1.2)
            self._travels = MovingLines(way, edgecolor=ACCENT, lw=2.2)
            self._sums = MovingMark(way, 0.024, facecolor=INK, edgecolor=PAPER)
        lines = [self._picked, self._guide, *self._lines.values(), self._stays, self._travels]
        super().__init__(figure, [*(line.artist for line in lines), self._mark.artist, self._sums.artist])

    def update(self, found: Mapping[Combination, Growth], picked: Combination, at: int) -> None:
        """Move the lines to what was ``found``; mark the ``picked`` one at the ranks with index ``at``."""
        for combination, line in self._lines.items():
            line.update(*_drawable(found[combination]))
        growth = found[picked]
        self._picked.update(*_drawable(growth))
        self._guide.update(_root(growth))
        self._mark.update(_within(growth.ranks[at], growth.errors[at]))

    def show_way(self, additions: Sequence[Addition], ranks: int) -> None:
        """Move the additions to these, among so many ranks."""
        edges = [((start, hop), (each.rank, each.hop)) for each in additions for hop, start in each.parts]
        self._stays.update(*(edge for edge in edges if edge[0][0] == edge[1][0]))
        self._travels.update(*(edge for edge in edges if edge[0][0] != edge[1][0]))
        brought = [(rank, 0) for rank in range(ranks)]
        self._sums.update(*brought, *((each.rank, each.hop) for each in additions))


def _draw_errors(axes: Axes, ranks: Sequence[int]) -> None:
    axes.set(xscale="log", yscale="log", ylim=(LEAST_ERROR, MOST_ERROR))
    axes.set_xlim(ranks[0] / 1.3, ranks[-1] * 1.3)
    axes.set(xlabel="ranks", ylabel="relative error of the mean")
    axes.set_xticks(ranks, [f"{count:,}" for count in ranks], fontsize=9)
    axes.xaxis.set_minor_locator(NullLocator())
    powers_of_ten(axes.yaxis)
    axes.grid(color=GRID)


def _draw_way(axes: Axes) -> None:
    axes.set(xlim=(-0.5, MOST_DRAWN - 0.5), ylim=(MOST_DRAWN - 0.5, -0.5), xlabel="rank", ylabel="hop")
    axes.xaxis.set_major_locator(MultipleLocator(1))
    axes.yaxis.set_major_locator(MultipleLocator(1))
    axes.grid(axis="y", color=GRID)
    axes.set_title(f"how one element is added up\n(of {MOST_DRAWN} ranks at most)", fontsize=10)


def _explain(axes: Axes, algorithms: Sequence[str], dtypes: Sequence[str]) -> None:
    """Name colours and dashes above the picture."""
    colours = [Line2D([], [], color=dtype_colour(dtype), lw=2, label=dtype) for dtype in dtypes]
    dashes = [
        Line2D([], [], color=INK, lw=2, ls=style, label=name)
        for name, style in zip(algorithms, _DASHES, strict=False)
    ]
    guide = Line2D([], [], color=QUIET, lw=1.2, ls=_DASHES[-1], label="as √ranks")
    picked = Line2D([], [], color=tint(INK, 0.2), lw=7, marker="D", mfc=INK, mec=PAPER, label="picked")
    axes.legend(
        handles=[*colours, *dashes, guide, picked],
        loc="lower left",
        bbox_to_anchor=(-0.03, 1.0),
        ncols=4,
        handlelength=2.2,
        columnspacing=1.4,
        fontsize=9,
    )


def _drawable(growth: Growth) -> list[Points]:
    """Return the line through the finite errors: one line, or none."""
    pairs = zip(growth.ranks, growth.errors, strict=True)
    points = [_within(count, error) for count, error in pairs if math.isfinite(error)]
    return [points] if points else []


def _root(growth: Growth) -> Points:
    """Return a line that begins as ``growth`` does and rises as the root of the number of ranks."""
    first, last = growth.ranks[0], growth.ranks[-1]
    error = growth.errors[0]
    return [_within(first, error), _within(last, error * math.sqrt(last / first))]


def _within(count: int, error: float) -> tuple[float, float]:
    """Return a point that is on the paper: at its upper edge for what is not finite."""
    return count, min(max(error, LEAST_ERROR), MOST_ERROR) if math.isfinite(error) else MOST_ERROR
