"""A moving average in 16 bits: what each step adds to it is rounded away."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.course.exercises.patients.case import Case, Observed
from amp_lessons.course.material.data import digits
from amp_lessons.course.material.models import PIXELS
from amp_lessons.devices import default_device

_IMAGES, _BATCH, _STEPS, _LR = 512, 64, 500, 0.05
_DECAY = 0.995
_MOVED = f"numbers of the average that moved, of {PIXELS}"
_MODEL = "error of the model, as a fraction of what it was"
_AVERAGE = "error of its average, as a fraction of what it was"


def observe(train: Callable[..., Any], seed: int) -> Observed:
    """Learn how sensitive each pixel of a camera is: how wrong are the model in bf16, and its average?"""
    draw = torch.Generator().manual_seed(seed)
    images = digits().train.images[:_IMAGES].to(default_device().type)
    gains = 1 + 0.1 * torch.randn(PIXELS, generator=draw).to(images.device)
    brightness = images @ gains
    model = nn.Linear(PIXELS, 1, bias=False).to(images.device, torch.bfloat16)
    nn.init.ones_(model.weight)
    step = _steps_of(model, images.split(_BATCH), brightness.split(_BATCH))
    average = train(model, step, _STEPS, _DECAY)["weight"]

    def error(weights: Tensor) -> float:
        return float((images @ weights.flatten().float() - brightness).norm())

    before = error(torch.ones_like(gains))
    moved = int((average != 1).sum())
    errors = {_MODEL: error(model.weight.detach()) / before, _AVERAGE: error(average) / before}
    return Observed((), {"steps made": _STEPS, _MOVED: moved, **errors})


def _steps_of(model: nn.Module, images: Any, brightness: Any) -> Callable[[], None]:
    """Return a function that makes one step of SGD on fp32 masters, and rounds them into the model."""
    masters = copy.deepcopy(model).float()
    optimizer = torch.optim.SGD(masters.parameters(), lr=_LR)
    batches = itertools.cycle(list(zip(images, brightness, strict=True)))

    def step() -> None:
        inputs, targets = next(batches)
        optimizer.zero_grad()
        F.mse_loss(masters(inputs).squeeze(1), targets).backward()
        optimizer.step()
        model.load_state_dict(masters.state_dict())

    return step


def shows(seen: Observed) -> bool:
    """Whether the model has learned, and its average is as wrong as it was in the beginning."""
    return seen.numbers[_MODEL] < 0.3 and seen.numbers[_AVERAGE] > 0.8


CASE = Case.beside(__file__, observe=observe, shows=shows)
