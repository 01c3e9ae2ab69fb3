"""Schedule and averaged weights advanced for every batch, also where the scaler skipped the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import training

_EPOCHS, _WARM_UP = 4, 8  # steps of warm-up: no more than the batches that overflow, and one
_LOSS_WEIGHT = 2.0**10  # so that the scale has to be halved about seven times before gradients fit into fp16
_RATE = "learning rate of each step that was made, as a fraction of the full one"
_UPDATES = "updates of the averaged weights for each step that was made"


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits with a warm-up: losses, the rate of each step, how often weights were averaged."""
    run = training(seed, loss_weight=_LOSS_WEIGHT)
    full, rates = run.optimizer.param_groups[0]["lr"], []
    run.optimizer.register_step_pre_hook(lambda o, *_: rates.append(o.param_groups[0]["lr"] / full))
    scheduler = LambdaLR(run.optimizer, lambda step: min(1.0, (step + 1) / _WARM_UP))
    average = AveragedModel(run.model)
    losses = run.run(loop, _EPOCHS, scheduler=scheduler, average=average)
    return Observed(
        (
            Curve("mean loss", "epoch", tuple(loss / _LOSS_WEIGHT for loss in losses)),
            Curve(_RATE, "step", tuple(rates)),
        ),
        {_UPDATES: int(average.n_averaged) / run.steps},
    )


def shows(seen: Observed) -> bool:
    """Whether the very first step was made at more than half the full rate, or averages outnumber steps."""
    return seen.curve(_RATE)[0] > 0.5 or seen.numbers[_UPDATES] > 1


CASE = Case.beside(__file__, observe=observe, shows=shows)
