"""A threshold that meets gradients which are still scaled: every step is cut to a 65536th of its length."""

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
from amp_lessons.course.exercises.patients.digits import MOVED, training

_EPOCHS, _MAX_NORM = 6, 1.0


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits with ``max_norm=1``: the loss, and how far the weights came."""
    run = training(seed)
    losses = run.run(loop, _EPOCHS, max_norm=_MAX_NORM)
    return Observed(
        (Curve("mean loss", "epoch", tuple(losses)),),
        {MOVED: run.moved(), "accuracy": run.accuracy()},
    )


def shows(seen: Observed) -> bool:
    """Whether the loss stays where it was, while the weights do move.

    A healthy run loses a fifth of its loss at least, and its weights move by half of their norm.
    """
    losses = seen.curve("mean loss")
    return losses[-1] > 0.99 * losses[0] and 0 < seen.numbers[MOVED] < 1e-3


CASE = Case(
    silent=True,
    symptom="Since clipping was added the loss hardly falls, epoch after epoch, as if the learning rate were "
    "tens of thousands of times smaller; nothing is inf or NaN.",
    code="clip_before_unscale",
    diagnoses=(
        Diagnosis(
            "max_norm is held against gradients that are still multiplied by the loss scale",
            "Their norm is 65536 times the true one, so nearly every step is cut, and scaler.step then "
            "divides what is left by 65536 again.",
            right=True,
        ),
        Diagnosis(
            "the scaler skips nearly every step, because the gradients overflow",
            "A skipped step moves no weight at all; here every step moves them, by very little.",
        ),
        Diagnosis(
            "small gradients vanish in fp16, because the loss is not scaled",
            "The loss is scaled: scaler.scale stands before backward. And it began with clipping.",
        ),
        Diagnosis(
            "max_norm is too small for this model",
            "With the same max_norm the loop learns in fp32 and in bf16, where nothing is scaled.",
        ),
        Diagnosis(
            "autocast keeps old 16-bit copies of the weights",
            "The context is entered anew for every batch, which empties its cache.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/pytorch/pytorch/issues/40907",
            "With clip_grad_norm_ in the loop the loss does not decrease any more.",
        ),
        Sighting(
            "https://github.com/pytorch/examples/issues/1196",
            "PyTorch's own minGPT-DDP example clips without unscaling.",
        ),
        Sighting("https://github.com/milesial/Pytorch-UNet/pull/470", "A popular U-Net, mended in 2023."),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("            optimizer.zero_grad()\n            with", "            scaler.update()\n"),
            ("            with", "            scaler.update()\n            optimizer.zero_grad()\n"),
        ),
        pieces(
            ("                loss = loss_fn(model(inputs), targets)\n",),
            ("                outputs = model(inputs)\n                loss = loss_fn(outputs, targets)\n",),
        ),
        pieces(
            ("clip_grad_norm_(model.parameters(), max_norm)",),
            ("clip_grad_norm_(model.parameters(), max_norm=max_norm)",),
            ("clip_grad_norm_(list(model.parameters()), max_norm)",),
        ),
        names("outputs", "logits", "predicted"),
        *LOOP_NAMES,
    ),
)
