"""A batch that overflows in front of a BatchNorm: its step is skipped, its statistics stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.material.data import LabelledImages, batches, digits
from amp_lessons.course.material.models import CLASSES, seeded
from amp_lessons.devices import default_device

_EPOCHS, _BRIGHT_IN = 6, 2
_IMAGES, _BATCH, _WIDTH, _LR = 256, 32, 32, 0.1
# as a camera counts: fp16 holds the layer's sums, but not those of an image four times as bright
_COUNTS, _BRIGHTER = 20_000.0, 4.0
_FINITE = "fraction of the weights that are finite at the end"


def observe(step: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits, of which one is too bright once, and evaluate in fp32 after each epoch."""
    data, device = digits().train, default_device().type
    loader = batches(
        LabelledImages(data.images[:_IMAGES] * _COUNTS, data.labels[:_IMAGES]), _BATCH, seed=seed
    )
    model = seeded(_network, seed).to(device)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=_LR), torch.amp.GradScaler(device)
    losses, tested = [], []
    for epoch in range(_EPOCHS):
        for number, (images, labels) in enumerate(loader):
            images = images.to(device, copy=True)
            if (epoch, number) == (_BRIGHT_IN, seed % len(loader)):
                images[3] *= _BRIGHTER
            asked = {"device_type": device, "dtype": torch.float16}
            loss = step(model, images, labels.to(device), optimizer, F.cross_entropy, scaler, **asked)
            losses.append(float(loss))
        tested.append(_test(model.eval(), loader, device))
        model.train()
    finite = torch.cat([each.detach().isfinite().flatten() for each in model.parameters()]).float().mean()
    curves = (
        Curve("loss in training", "batch", tuple(losses)),
        Curve("loss in the test", "epoch", tuple(tested)),
    )
    return Observed(curves, {_FINITE: float(finite)})


def _network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, _WIDTH), nn.BatchNorm1d(_WIDTH), nn.ReLU(), nn.Linear(_WIDTH, CLASSES))


@torch.no_grad()
def _test(model: nn.Module, loader: list[Any], device: str) -> float:
    losses = [
        float(F.cross_entropy(model(images.to(device)), labels.to(device))) for images, labels in loader
    ]
    return sum(losses) / len(losses)


def shows(seen: Observed) -> bool:
    """Whether one loss of training is no number and the others fall, and tests are NaN from then on."""
    losses, tested = (torch.tensor(seen.curve(f"loss in {where}")) for where in ("training", "the test"))
    good = losses[losses.isfinite()]
    falls = len(good) == len(losses) - 1 and good[-5:].mean() < good[:5].mean()
    broken = tested[:_BRIGHT_IN].isfinite().all() and tested[_BRIGHT_IN:].isnan().all()
    return bool(falls and broken)


CASE = Case.beside(__file__, observe=observe, shows=shows)
