"""A mean over ranks: how wrong it gets with their number, the way they are added up, and the dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator
from torch import Tensor

from amp_lessons import parallel
from amp_lessons._base.arguments import require
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, PAPER, QUIET, dtype_colour, house_style, tint
from amp_lessons._base.text.words import COMPUTED_MARK, relative
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.moving import MovingLines, MovingMark, MovingView, Points
from amp_lessons.course.views.base.number_line import LEAST_ERROR, errors_by_count
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.parallel import Addition, Growth

ALGORITHMS = ("ring", "tree")  # gloo's ring only runs the other way round
DTYPES = {dtype_name(dtype): dtype for dtype in (torch.bfloat16, torch.float16, torch.float32)}
MADE_UP = {"ranks agree": 0.1, "ranks disagree": 10.0}
"""Made-up gradients by name: how many times as large as what they share each rank's own noise is."""
_MOST_RANKS = 1024


class ReductionView(MovingView):
    """Simulated all-reduces of gradients, hop by hop, against the mean in fp64."""

    exponent = ControlValue[int]("_ranks", "The number of ranks, as an exponent of two.")
    algorithm = ControlValue[str]("_algorithm", 'The way that sums are made: "ring" or "tree".')
    dtype = ControlValue[str]("_dtype", "The short name of the dtype that every hop is rounded to.")
    gradients = ControlValue[str]("_gradients", "The name of the gradients that are averaged.")

    def __init__(
        self,
        gradients: Tensor | Mapping[str, Tensor] | None = None,
        exponent: int = 3,
        algorithm: str = "ring",
        dtype: str = "bf16",
        op: str = "mean",
    ) -> None:
        """Average ``gradients`` over 2^``exponent`` ranks: one tensor (ranks, …), or several by name.

        For None they are made up, for 1,024 ranks, once such that the ranks agree and once such that they do
        not. ``op`` is one of ``parallel.AVERAGINGS``. All numbers of ranks are computed at once, which takes
        about a second for 1,024 ranks. Raises TypeError or ValueError for fewer than two ranks.
        """
        self._found: dict[str, dict[Combination, Growth]] = {
            name: {
                (way, short): parallel.growth(each, dtype, way, op)
                for way in ALGORITHMS
                for short, dtype in DTYPES.items()
            }
            for name, each in _by_name(gradients).items()
        }
        self._way = lru_cache(maxsize=None)(parallel.additions)
        self._of = "mean" if op != "sum" else "sum"
        most = min(len(each.ranks) for found in self._found.values() for each in found.values())
        self._ranks = Slider("Ranks", 1, most, exponent, words=lambda power: f"{2**power:,}")
        self._algorithm = dropdown("algorithm", list(ALGORITHMS), algorithm)
        self._dtype = dropdown("each hop in", list(DTYPES), dtype)
        self._gradients = dropdown("gradients", list(self._found), next(iter(self._found)))
        controls = [self._ranks, row(self._algorithm, self._dtype, self._gradients)]
        super().__init__(
            controls,
            alt="Relative error of a mean against the number of ranks, beside how ranks are added up.",
        )
        self._drawing = ReductionPicture([2**k for k in range(1, most + 1)], ALGORITHMS, list(DTYPES))
        self._refresh()
        self.follow(self._refresh, self._ranks, self._algorithm, self._dtype, self._gradients)

    def growth(self, algorithm: str, dtype: str) -> Growth:
        """Return the errors over all numbers of ranks, of the gradients that are picked."""
        return self._found[self.gradients][algorithm, dtype]

    @property
    def error(self) -> float:
        """The relative error of the mean that is picked."""
        return self.growth(self.algorithm, self.dtype).errors[self.exponent - 1]

    def _refresh(self) -> None:
        found = self._found[self.gradients]
        self._drawing.update(found, (self.algorithm, self.dtype), self.exponent - 1)
        drawn = min(2**self.exponent, MOST_DRAWN)
        self._drawing.show_way(self._way(drawn, self.algorithm), drawn)
        self.show(self._drawing, self._caption_now(), mark=COMPUTED_MARK)

    def _caption_now(self) -> str:
        at, picked = self.exponent - 1, self.growth(self.algorithm, self.dtype)
        hops = f"each of {picked.hops[at]:,} hops" if picked.hops[at] > 1 else "one hop"
        others = [
            f"{algorithm} in {dtype}: {_off(self.growth(algorithm, dtype).errors[at])}"
            for algorithm in ALGORITHMS
            for dtype in DTYPES
            if (algorithm == self.algorithm) != (dtype == self.dtype)
        ]
        return (
            f"{2**self.exponent:,} ranks ({self.gradients}), {self.algorithm} in {self.dtype}: an element is "
            f"rounded after {hops}. The {self._of} is {_off(picked.errors[at])}"
            f"{_size(picked.sizes[at])}. To compare, {'; '.join(others)}."
        )


def _by_name(gradients: Tensor | Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    if gradients is None:
        return {name: parallel.rank_gradients(_MOST_RANKS, noise=noise) for name, noise in MADE_UP.items()}
    named = gradients if isinstance(gradients, Mapping) else {"as given": gradients}
    for each in named.values():
        right = "a tensor (ranks, …), or a dict of such"
        if require(each, Tensor, "gradients", right).dim() < 2 or len(each) < 2:
            raise ValueError(f"gradients is {right}, of two ranks at least, not {tuple(each.shape)}")
        if not each.any():
            raise ValueError(f"gradients is {right}, not all of them zero: there is nothing to be off from")
    if not named:
        raise ValueError("gradients has at least one tensor (ranks, …)")
    return dict(named)


def _off(error: float) -> str:
    return f"{relative(error)} off" if math.isfinite(error) else "inf or nan in places"


def _size(size: float) -> str:
    """Describe how much of the mean is there, where rounding shows in it."""
    return f", {size:.2f} of its length" if math.isfinite(size) and abs(size - 1) >= 0.005 else ""


MOST_ERROR = 2.0
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
            errors_by_count(axes, ranks, MOST_ERROR, margin=1.3)
            axes.set(xlabel="ranks", ylabel="relative error of the mean")
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
        first, last, error = growth.ranks[0], growth.ranks[-1], growth.errors[0]
        self._guide.update([_within(first, error), _within(last, error * math.sqrt(last / first))])
        self._mark.update(_within(growth.ranks[at], growth.errors[at]))

    def show_way(self, additions: Sequence[Addition], ranks: int) -> None:
        """Move the additions to these, among so many ranks."""
        edges = [((start, hop), (each.rank, each.hop)) for each in additions for hop, start in each.parts]
        self._stays.update(*(edge for edge in edges if edge[0][0] == edge[1][0]))
        self._travels.update(*(edge for edge in edges if edge[0][0] != edge[1][0]))
        brought = [(rank, 0) for rank in range(ranks)]
        self._sums.update(*brought, *((each.rank, each.hop) for each in additions))


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


def _within(count: int, error: float) -> tuple[float, float]:
    """Return a point that is on the paper: at its upper edge for what is not finite."""
    return count, min(max(error, LEAST_ERROR), MOST_ERROR) if math.isfinite(error) else MOST_ERROR
