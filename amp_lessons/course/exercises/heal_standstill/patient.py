"""A threshold that meets gradients which are still scaled: with SGD every step is far too short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import MOVED, training

_EPOCHS, _MAX_NORM = 6, 1.0


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits with ``max_norm=1``: the loss, and how far the weights came."""
    run = training(seed)
    losses = run.run(loop, _EPOCHS, max_norm=_MAX_NORM)
    return Observed(
        (Curve("mean loss", "epoch", tuple(losses)),), {MOVED: run.moved(), "accuracy": run.accuracy()}
    )


def shows(seen: Observed) -> bool:
    """Whether the loss stays where it was, while the weights do move.

    A healthy run loses a fifth of its loss at least, and its weights move by half of their norm.
    """
    losses = seen.curve("mean loss")
    return losses[-1] > 0.99 * losses[0] and 0 < seen.numbers[MOVED] < 1e-3


CASE = Case.beside(__file__, observe=observe, shows=shows)
