"""A mask of -1e9 in fp16, and a batch in which one text is empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import first_digits, trained
from amp_lessons.course.material.models import CLASSES, seeded

_IMAGES, _BATCH, _LR = 960, 32, 0.5
_ROWS, _PIXELS, _WIDTH = 8, 8, 16
_EMPTY_FROM = 18  # the first of two batches of which one image is blank
DEVICE = "cpu"  # on a GPU torch.where raises where fp16 does not have the number, and nothing becomes -inf
_NAN = "fraction of the weights that are NaN"


def observe(attend: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits, read as texts of eight rows: blank ones are padding, and two texts have no ink."""
    loader = first_digits(_IMAGES, _BATCH, seed, DEVICE)
    for images, _ in loader[_EMPTY_FROM + seed % 4 :: 8]:
        images[3] = 0
    model = seeded(lambda: _Reader(attend), seed).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    losses = trained(loader, lambda images, labels: F.cross_entropy(model(images), labels), optimizer)
    weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
    return Observed((Curve("loss", "batch", losses),), {_NAN: float(weights.isnan().float().mean())})


class _Reader(nn.Module):
    """A layer of attention in fp16 between layers in fp32; images come as rows of 64 pixels."""

    def __init__(self, attend: Callable[..., Any]) -> None:
        super().__init__()
        self.attend = attend
        self.embed, self.head = nn.Linear(_PIXELS, 3 * _WIDTH), nn.Linear(_ROWS * _WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        rows = images.reshape(-1, 1, _ROWS, _PIXELS)
        inked = rows.any(-1)[:, :, None]
        seen = self.attend(*self.embed(rows).half().chunk(3, dim=-1), inked)
        return self.head(seen.float().flatten(1))


def shows(seen: Observed) -> bool:
    """Whether the loss is a number that falls, and NaN from one batch on to the end."""
    losses = torch.tensor(seen.curve("loss"))
    good = losses.isfinite()
    count = int(good.sum())
    falls = losses[count - 5 : count].mean() < losses[:5].mean()
    return bool(5 < count < len(losses) and good[:count].all() and falls)


CASE = Case.beside(__file__, observe=observe, shows=shows)
