"""One autocast context around the whole training: every forward pass uses the 16-bit weights of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import MOVED, training

_EPOCHS = 5


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits: the loss, and how far the weights came."""
    run = training(seed)
    losses = run.run(loop, _EPOCHS)
    return Observed((Curve("mean loss", "epoch", tuple(losses)),), {MOVED: run.moved()})


def shows(seen: Observed) -> bool:
    """Whether every epoch has the same loss to the last digit, although the weights move."""
    return len(set(seen.curve("mean loss"))) == 1 and seen.numbers[MOVED] > 0.1


CASE = Case.beside(__file__, observe=observe, shows=shows)
