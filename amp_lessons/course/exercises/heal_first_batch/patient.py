"""An eps of 1e-8 in fp16, where it is 0, and images with blank rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import first_digits, trained
from amp_lessons.course.material.models import digits_classifier
from amp_lessons.devices import default_device

_IMAGES, _BATCH, _LR = 640, 32, 0.2
_COLUMNS, _PIXELS = 8, 8
_NAN = "fraction of the normalised pixels that are NaN"


def observe(normalise: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits, each of whose eight columns of pixels is normalised in fp16 on its way in."""
    loader = first_digits(_IMAGES, _BATCH, seed, default_device().type)
    model = digits_classifier(32, seed=seed).to(default_device().type)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    nan: list[Tensor] = []

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        columns = images.reshape(-1, _PIXELS, _COLUMNS).mT.half()
        inputs = normalise(columns).float().flatten(1)
        nan.append(inputs.isnan().float().mean())
        return F.cross_entropy(model(inputs), labels)

    losses = trained(loader, loss_of, optimizer)
    return Observed((Curve("loss", "batch", losses),), {_NAN: float(torch.stack(nan).mean())})


def shows(seen: Observed) -> bool:
    """Whether no loss is a number."""
    return bool(torch.tensor(seen.curve("loss")).isnan().all())


CASE = Case.beside(__file__, observe=observe, shows=shows)
