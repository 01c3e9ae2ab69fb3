"""Small grey images in rows, each row named."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import house_style


def image_rows_picture(rows: Mapping[str, Tensor]) -> Picture:
    """Draw the first 16 of each row's square images, (n, pixels) or (n, 1, side, side), ink from 0 to 1."""
    with house_style():
        figure = Figure(figsize=(9, 0.62 * len(rows) + 0.1))
        for at, (name, images) in enumerate(rows.items()):
            top = 1 - (at + 1) / len(rows)
            figure.text(0.01, top + 0.5 / len(rows), name, va="center")
            axes = figure.add_axes((0.25, top + 0.04 / len(rows), 0.74, 0.92 / len(rows)))
            axes.imshow(_side_by_side(images[:16]), cmap="gray_r", vmin=0, vmax=1, aspect="equal")
            axes.set_axis_off()
    return Picture(figure)


def _side_by_side(images: Tensor) -> np.ndarray:
    side = math.isqrt(images[0].numel())
    squares = images.detach().float().cpu().reshape(-1, side, side)
    return torch.cat([torch.nn.functional.pad(square, (0, 1)) for square in squares], dim=1).numpy()
