"""A gradient penalty taken on gradients that are still scaled: it counts tens of thousands of times."""

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


CASE = Case(
    silent=True,
    symptom="With a penalty on the gradient's norm the model learns nothing in fp16, and a "
    "penalty ten times smaller does not help; in bf16 the same script learns.",
    code="penalty_on_scaled_gradients",
    diagnoses=(
        Diagnosis(
            "the penalty is taken on gradients that are still multiplied by the loss scale",
            "A penalty of 0.01 on a norm that is 65536 times too large counts more than the loss, and it is "
            "scaled a second time for backward. In bf16 the scale is 1.",
            right=True,
        ),
        Diagnosis(
            "second derivatives are too small for fp16",
            "Then the penalty would vanish, and the model would learn as it does without one.",
        ),
        Diagnosis(
            "the penalty is too large",
            "It is the same in bf16, where the model learns; and one ten times smaller does not help.",
        ),
        Diagnosis(
            "create_graph=True is missing, so that the penalty has no gradient",
            "It is there; without it the model would learn as without a penalty.",
        ),
        Diagnosis(
            "backward goes through the same graph twice",
            "It does, and that is what create_graph=True is for; else PyTorch would raise.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/NVIDIA/apex/issues/654",
            "A WGAN with gradient penalty overflows until the scale has come down to zero.",
        ),
        Sighting(
            "https://github.com/lucidrains/stylegan2-pytorch/pull/101",
            "A port to AMP on whose list stands that the penalty's gradients are not unscaled.",
        ),
        Sighting(
            "https://github.com/pytorch/pytorch/issues/25081",
            "The proposal of AMP itself: divide by the scale before computing a penalty.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("            optimizer.zero_grad()\n            with", "            scaler.update()\n"),
            ("            with", "            scaler.update()\n            optimizer.zero_grad()\n"),
        ),
        pieces(("loss + penalty * norm",), ("penalty * norm + loss",), ("loss + norm * penalty",)),
        pieces(("enabled=dtype == torch.float16",), ("enabled=(dtype is torch.float16)",)),
        names("gradients, gradient", "slopes, slope", "found, each"),
        names("scaler", "amp", "scaling"),
        names("model", "net"),  # a line of 110 characters has no room for more
        *(ways for ways in LOOP_NAMES if ways.ways[0] != ("model",)),
    ),
)
