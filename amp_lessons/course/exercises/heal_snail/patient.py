"""A scaler that is made anew in every epoch: it begins at 65536 each time, and skips until it has learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amp_lessons.course.exercises.patients.case import (
    LOOP_NAMES,
    Case,
    Curve,
    Diagnosis,
    Observed,
    Sighting,
    names,
    pieces,
)
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


CASE = Case(
    silent=True,
    symptom="The loss falls, but at a snail's pace: after most batches not one weight has changed, in the "
    "last epoch as in the first.",
    code="scaler_recreated",
    diagnoses=(
        Diagnosis(
            "in every epoch what was learned about the loss scale is forgotten",
            "The steps that are made come at the end of each epoch: at its beginning the scale is 65536 "
            "again, too large for this loss, and is halved once per batch.",
            right=True,
        ),
        Diagnosis(
            "the learning rate is too small",
            "A small rate moves weights by little, not by nothing.",
        ),
        Diagnosis(
            "gradients vanish in fp16",
            "Vanished gradients are zeros, and some weights would still move; here no weight does, and at "
            "the end of each epoch all of them.",
        ),
        Diagnosis(
            "the loss is too large for fp16, whatever the scale",
            "Then no batch would ever be followed by a change, and the last ones of each epoch are.",
        ),
        Diagnosis(
            "autocast keeps old 16-bit copies of the weights",
            "Then the weights would move after every batch, and the loss would not change.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/conservationtechlab/animl-py/issues/298",
            "The scaler was made in the function that trains one epoch.",
        ),
        Sighting(
            "https://discuss.pytorch.org/t/training-diverges-if-torch-autocast-is-not-used/167520",
            "Somebody shows a loop with GradScaler() in each of its lines, and is told so.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("            optimizer.zero_grad()\n            with", "            scaler.update()\n"),
            ("            with", "            scaler.update()\n            optimizer.zero_grad()\n"),
        ),
        pieces(
            ("optimizer.zero_grad()",), ("model.zero_grad()",), ("optimizer.zero_grad(set_to_none=True)",)
        ),
        pieces(("enabled=dtype == torch.float16",), ("enabled=(dtype is torch.float16)",)),
        names("scaler", "grad_scaler", "amp_scaler"),
        *LOOP_NAMES,
    ),
)
