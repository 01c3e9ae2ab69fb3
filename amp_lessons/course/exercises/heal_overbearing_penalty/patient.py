"""A gradient penalty taken on gradients that are still scaled: it counts tens of thousands of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import training

_EPOCHS, _PENALTY = 8, 0.01
_STEPS = "fraction of the batches after which the weights changed"


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits with a small penalty: the loss without it, and how many batches led to a step."""
    run = training(seed)
    losses = run.run(loop, _EPOCHS, penalty=_PENALTY)
    fraction = run.steps / (_EPOCHS * len(run.loader))
    return Observed(
        (Curve("mean loss", "epoch", tuple(losses)),), {_STEPS: fraction, "accuracy": run.accuracy()}
    )


def shows(seen: Observed) -> bool:
    """Whether the loss does not fall below that of guessing, which is log 10 = 2.30."""
    return seen.curve("mean loss")[-1] > 2.2


CASE = Case.beside(__file__, observe=observe, shows=shows)
