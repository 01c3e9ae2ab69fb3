"""Bars over the binades of a number line, stacked and coloured by what becomes of the values."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from amp_lessons.views.base.style import ZONES

Fates = Mapping[str, Mapping[int, int]]


class FateBars:
    """One bar per binade from ``2**low`` to ``2**high``, of parts that can be moved.

    The outermost bars also count what lies beyond them.
    """

    def __init__(self, axes: Axes, low: int, high: int) -> None:
        """Draw bars of no height."""
        self._low, self._high = low, high
        edges, nothing = np.arange(low, high + 1), np.zeros(high - low)
        self._parts = {
            fate: axes.stairs(
                nothing, edges, fill=True, facecolor=zone.colour, edgecolor="white", hatch=zone.hatch
            )
            for fate, zone in ZONES.items()
        }
        self.artists = [*self._parts.values()]

    def name(self, axes: Axes, **names: str) -> None:
        """Say above ``axes`` what each colour means; ``names`` are those of fates called otherwise here."""
        labels = [names.get(fate, zone.name) for fate, zone in ZONES.items()]
        axes.legend(
            self.artists,
            labels,
            loc="lower left",
            bbox_to_anchor=(-0.01, 1),
            ncols=len(labels),
            handlelength=1.4,
        )

    def update(self, fates: Fates, total: int, shift: float = 0) -> np.ndarray:
        """Move the bars to these counts, in % of ``total``, and return how high they are.

        Binades are moved ``shift`` to the right.
        """
        floor = np.zeros(self._high - self._low)
        for fate, part in self._parts.items():
            top = floor + self._shares(fates.get(fate, {}), total, shift)
            part.set_data(top, baseline=floor)  # type: ignore[arg-type]
            floor = top
        return floor

    def _shares(self, counts: Mapping[int, int], total: int, shift: float) -> np.ndarray:
        shares = np.zeros(self._high - self._low)
        for binade, count in counts.items():
            column = min(max(math.floor(binade + shift), self._low), self._high - 1) - self._low
            shares[column] += 100 * count / max(total, 1)
        return shares
