"""An eps of 1e-8 in fp16, where it is 0, and images with blank rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.material.data import LabelledImages, batches, digits
from amp_lessons.course.material.models import digits_classifier
from amp_lessons.devices import default_device

_IMAGES, _BATCH, _LR = 640, 32, 0.2
_COLUMNS, _PIXELS = 8, 8
_NAN = "fraction of the normalised pixels that are NaN"


def observe(normalise: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits, each of whose eight columns of pixels is normalised in fp16 on its way in."""
    data = digits().train
    some = LabelledImages(data.images[:_IMAGES], data.labels[:_IMAGES])
    loader = batches(some, _BATCH, seed=seed, device=default_device().type)
    model = digits_classifier(32, seed=seed).to(default_device().type)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    losses, nan = [], []
    for images, labels in loader:
        columns = images.reshape(-1, _PIXELS, _COLUMNS).mT.half()
        inputs = normalise(columns).float().flatten(1)
        loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        nan.append(inputs.isnan().float().mean())
    return Observed((Curve("loss", "batch", tuple(losses)),), {_NAN: float(torch.stack(nan).mean())})


def shows(seen: Observed) -> bool:
    """Whether no loss is a number."""
    return bool(torch.tensor(seen.curve("loss")).isnan().all())


CASE = Case.beside(__file__, observe=observe, shows=shows)
