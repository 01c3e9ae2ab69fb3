"""A scaler that is made anew in every epoch: it begins at 65536 each time, and skips until it has learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import training

_EPOCHS = 8
# gradients of a loss this large fit into fp16 once the scale was halved six times; an epoch has 8 batches
_LOSS_WEIGHT = 2.0**9
_STEPS = "fraction of the batches after which the weights changed"


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits with a loss of large numbers, and count the batches after which weights moved."""
    run = training(seed, loss_weight=_LOSS_WEIGHT)
    losses = run.run(loop, _EPOCHS)
    fraction = run.steps / (_EPOCHS * len(run.loader))
    return Observed((Curve("mean loss", "epoch", tuple(losses)),), {_STEPS: fraction})


def shows(seen: Observed) -> bool:
    """Whether after most batches nothing moved, to the end."""
    return seen.numbers[_STEPS] < 0.4


CASE = Case.beside(__file__, observe=observe, shows=shows)
