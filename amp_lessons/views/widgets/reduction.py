"""A mean over ranks: how wrong it gets with their number, the way they are added up, and the dtype."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import torch
from torch import Tensor

from amp_lessons import parallel
from amp_lessons.arguments import require
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.parallel import Growth
from amp_lessons.text.marks import COMPUTED_MARK
from amp_lessons.text.words import relative
from amp_lessons.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.views.base.moving import MovingView
from amp_lessons.views.figures.reduction import MOST_DRAWN, Combination, ReductionPicture

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
        self._found = {name: _all_ways(each, op) for name, each in _by_name(gradients).items()}
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
        for control in (self._ranks, self._algorithm, self._dtype, self._gradients):
            control.observe(self._refresh, "value")

    def growth(self, algorithm: str, dtype: str) -> Growth:
        """Return the errors over all numbers of ranks, of the gradients that are picked."""
        return self._found[self.gradients][algorithm, dtype]

    @property
    def error(self) -> float:
        """The relative error of the mean that is picked."""
        return self.growth(self.algorithm, self.dtype).errors[self.exponent - 1]

    def _refresh(self, _change: object = None) -> None:
        found = self._found[self.gradients]
        self._drawing.update(found, (self.algorithm, self.dtype), self.exponent - 1)
        drawn = min(2**self.exponent, MOST_DRAWN)
        self._drawing.show_way(self._way(drawn, self.algorithm), drawn)
        self.show(self._drawing, self._caption_now(), mark=COMPUTED_MARK)

    def _caption_now(self) -> str:
        at, picked = self.exponent - 1, self.growth(self.algorithm, self.dtype)
        others = [
            f"{algorithm} in {dtype}: {_off(self.growth(algorithm, dtype).errors[at])}"
            for algorithm in ALGORITHMS
            for dtype in DTYPES
            if (algorithm == self.algorithm) != (dtype == self.dtype)
        ]
        return (
            f"{2**self.exponent:,} ranks ({self.gradients}), {self.algorithm} in {self.dtype}: an element is "
            f"rounded after {_hops(picked.hops[at])}. The {self._of} is {_off(picked.errors[at])}"
            f"{_size(picked.sizes[at])}. To compare, {'; '.join(others)}."
        )


def _all_ways(gradients: Tensor, op: str) -> dict[Combination, Growth]:
    return {
        (algorithm, name): parallel.growth(gradients, dtype, algorithm, op)
        for algorithm in ALGORITHMS
        for name, dtype in DTYPES.items()
    }


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


def _hops(count: int) -> str:
    return f"each of {count:,} hops" if count > 1 else "one hop"


def _off(error: float) -> str:
    return f"{relative(error)} off" if math.isfinite(error) else "inf or nan in places"


def _size(size: float) -> str:
    """Say how much of the mean is there, where rounding shows in it."""
    return f", {size:.2f} of its length" if math.isfinite(size) and abs(size - 1) >= 0.005 else ""
