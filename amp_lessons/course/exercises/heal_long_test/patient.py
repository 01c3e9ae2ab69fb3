"""Metrics summed in the model's 16 bits: a counter that stops while the test goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import trained
from amp_lessons.course.material.data import batches, digits
from amp_lessons.course.material.models import digits_classifier
from amp_lessons.devices import default_device

_LENGTHS = (128, 256, 512, 1024)
_EPOCHS, _BATCH, _LR = 4, 32, 0.3
_ACCURACY, _LOSS, _OVER = "accuracy", "mean loss", "number of images"


def observe(evaluate: Callable[..., Any], seed: int) -> Observed:
    """Train a classifier of the digits, cast it to bf16, and test it on more and more images, one by one."""
    model = _trained(seed).to(torch.bfloat16)
    data, device = digits().train, default_device().type
    images, labels = data.images.to(device, torch.bfloat16), data.labels.to(device)
    seen = [
        evaluate(model, list(zip(images[:length].split(1), labels[:length].split(1), strict=True)))
        for length in _LENGTHS
    ]
    losses, accuracies = zip(*seen, strict=True)
    return Observed(
        (Curve(_ACCURACY, _OVER, accuracies, _LENGTHS), Curve(_LOSS, _OVER, losses, _LENGTHS)), {}
    )


def _trained(seed: int) -> nn.Module:
    model = digits_classifier(32, seed=seed).to(default_device().type)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    for _ in range(_EPOCHS):
        loader = batches(digits().train, _BATCH, seed=seed, device=default_device().type)
        trained(loader, lambda inputs, labels: F.cross_entropy(model(inputs), labels), optimizer)
    return model


def shows(seen: Observed) -> bool:
    """Whether the accuracy falls by half at least from the shortest test to the longest."""
    accuracies = seen.curve(_ACCURACY)
    return accuracies[0] > 0.8 and accuracies[-1] < 0.5 * accuracies[0]


CASE = Case.beside(__file__, observe=observe, shows=shows)
