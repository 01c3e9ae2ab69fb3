"""Gradients unscaled after each batch of a window: those of earlier batches are divided again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import Training, training

_EPOCHS, _WINDOW = 6, 4
_DIFFERENCE = "difference that wrong labels in three of four batches make, as a fraction of the way moved"


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train twice in windows of four batches: as it should be, and with wrong labels in the first three."""
    right, wrong = training(seed, lr=0.6), training(seed, lr=0.6)
    wrong.loader = [
        (x, y if (i + 1) % _WINDOW == 0 else (y + 1) % 10) for i, (x, y) in enumerate(wrong.loader)
    ]
    losses = right.run(loop, _EPOCHS, accumulation_steps=_WINDOW)
    wrong.run(loop, _EPOCHS, accumulation_steps=_WINDOW)
    astray = float((right.weights() - wrong.weights()).norm() / _way(right).norm())
    return Observed((Curve("mean loss", "epoch", tuple(losses)),), {_DIFFERENCE: astray})


def _way(run: Training) -> Tensor:
    return run.weights() - run.start


def shows(seen: Observed) -> bool:
    """Whether three batches of four hardly matter.

    In fp16 a gradient that was divided by 65536 twice is a 65536th of what it should be.
    """
    return seen.numbers[_DIFFERENCE] < 1e-2


CASE = Case.beside(__file__, observe=observe, shows=shows)
