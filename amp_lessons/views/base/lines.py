"""Lines and marks that a moving picture can move: patches made of straight lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path

Points = Sequence[tuple[float, float]]


class MovingLines:
    """Lines on ``axes``, each through points of its own, in data coordinates; all of one style.

    They lie above the grid and lines that stand still, on a page as in a PNG.
    """

    def __init__(self, axes: Axes, **style: Any) -> None:
        """Draw nothing yet; ``style`` is that of a ``PathPatch``."""
        self.artist = PathPatch(_path([[(0.0, 0.0)]]), **{"fill": False, "zorder": 3, **style})
        axes.add_patch(self.artist)

    def update(self, *lines: Points) -> None:
        """Draw these lines, each of at least one point, instead of those that are there."""
        self.artist.set_path(_path(lines or [[(0.0, 0.0)]]))


class MovingMark:
    """A diamond that is always of one size, wherever it is on axes that may be logarithmic."""

    def __init__(self, axes: Axes, size: float = 0.018, **style: Any) -> None:
        """Draw nothing yet; ``size`` is half of its width, as a part of that of ``axes``."""
        self._axes = axes
        width, height = axes.get_window_extent().size
        self._arms = np.array([(1, 0), (0, width / height), (-1, 0), (0, -width / height), (1, 0)]) * size
        self.artist = PathPatch(_path([[(0.0, 0.0)]]), zorder=5, **style)
        axes.add_patch(self.artist)
        self.artist.set_transform(axes.transAxes)

    def update(self, *points: tuple[float, float]) -> None:
        """Put a mark at each of these points, in data coordinates."""
        to_axes = self._axes.transData + self._axes.transAxes.inverted()
        centres = to_axes.transform(np.reshape(points, (-1, 2)).astype(float))
        self.artist.set_path(_path([self._arms + centre for centre in centres] or [[(-1.0, -1.0)]]))


def _path(lines: Any) -> Path:
    codes = [code for line in lines for code in (Path.MOVETO, *[Path.LINETO] * (len(line) - 1))]
    return Path(np.concatenate([np.reshape(line, (-1, 2)) for line in lines]), codes)
