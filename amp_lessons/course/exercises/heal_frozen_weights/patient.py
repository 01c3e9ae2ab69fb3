"""Weights in bf16, and updates below half the distance to the next bf16 number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import nn

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import first_digits
from amp_lessons.course.material.models import CLASSES, PIXELS, seeded
from amp_lessons.devices import default_device

_GAINS = 768
_IMAGES, _BATCH, _EPOCHS, _LR = 200, 8, 4, 0.02
_MOVED = f"gains of the layer norm that moved, of {_GAINS}"
_STEPS = "steps made"


def observe(train: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits for a hundred steps: the loss, and how many of the gains are another number."""
    device = default_device().type
    loader = first_digits(_IMAGES, _BATCH, seed, device)
    model = seeded(_classifier, seed).to(device)
    losses = train(model, loader, F.cross_entropy, _EPOCHS, _LR)
    gains = dict(model.named_parameters())["1.weight"]
    moved = int((gains.detach().float() != 1).sum())
    return Observed(
        (Curve("mean loss", "epoch", tuple(losses)),), {_STEPS: len(loader) * _EPOCHS, _MOVED: moved}
    )


def _classifier() -> nn.Sequential:
    hidden = nn.Linear(PIXELS, _GAINS), nn.LayerNorm(_GAINS), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(_GAINS, CLASSES))


def shows(seen: Observed) -> bool:
    """Whether no gain moved, while the loss fell; of a healthy run's, nine in ten do."""
    losses = seen.curve("mean loss")
    return seen.numbers[_MOVED] == 0 and losses[-1] < 0.8 * losses[0]


CASE = Case.beside(__file__, observe=observe, shows=shows)
