"""Tensors to look at where no network has run: made up, and spread as those of networks are."""

from __future__ import annotations

import torch
from torch import Tensor


def gradient_like(rows: int = 32, columns: int = 512, *, seed: int = 0) -> Tensor:
    """Return a made-up float32 matrix (rows, columns), spread as the gradient of a layer's output is.

    Each row (a token) and each column (a channel) has a size of its own, and sizes are log-normal, as was
    measured in "Neural gradients are near-lognormal" (https://arxiv.org/abs/2006.08173). A typical element is
    2^-18 large, as after a loss is averaged over a batch.
    """
    generator = torch.Generator().manual_seed(seed)
    row_sizes, column_sizes = (torch.randn(side, generator=generator) for side in (rows, columns))
    sizes = torch.exp2(2 * row_sizes[:, None] + column_sizes - 18)
    return sizes * torch.randn(rows, columns, generator=generator)
