"""One autocast context around the whole training: every forward pass uses the 16-bit weights of the first."""

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

_EPOCHS = 5


def observe(loop: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits: the loss, and how far the weights came."""
    run = training(seed)
    losses = run.run(loop, _EPOCHS)
    return Observed((Curve("mean loss", "epoch", tuple(losses)),), {MOVED: run.moved()})


def shows(seen: Observed) -> bool:
    """Whether every epoch has the same loss to the last digit, although the weights move."""
    return len(set(seen.curve("mean loss"))) == 1 and seen.numbers[MOVED] > 0.1


CASE = Case(
    silent=True,
    symptom="Every epoch has exactly the same mean loss, to the last digit, although the weights do change "
    "from batch to batch.",
    code="one_big_autocast",
    diagnoses=(
        Diagnosis(
            "the forward pass uses 16-bit copies of the weights from the first batch on",
            "The weights move and the loss does not: what computes the loss are not these weights. The "
            "copies live as long as the outermost autocast context.",
            right=True,
        ),
        Diagnosis(
            "the scaler skips every step",
            "Then the weights would not move at all, and they do.",
        ),
        Diagnosis(
            "all gradients vanish in fp16",
            "Then the weights would not move either; and in bf16 it would not happen, but it does.",
        ),
        Diagnosis(
            "backward inside autocast computes gradients of the wrong dtype",
            "PyTorch advises against it, and it is mended along the way; but a gradient that is slightly off "
            "still changes the loss.",
        ),
        Diagnosis(
            "the loader yields the same batch again and again",
            "It yields the same batches in every epoch, as always; a model that learns has another loss on "
            "them.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/X-GenGroup/Flow-Factory/pull/186",
            "One autocast around optimize() in nine trainers: training froze, the loss was flat.",
        ),
        Sighting(
            "https://github.com/NVIDIA/apex/pull/132",
            "In 2019 apex already had to decide when an entry of its cache of casts is stale.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("loss = loss_fn(model(inputs), targets)", "total += loss.item()"),
            ("loss = loss_fn(model(inputs), targets)", "total += float(loss.detach())"),
        ),
        pieces(
            ("optimizer.zero_grad()",), ("model.zero_grad()",), ("optimizer.zero_grad(set_to_none=True)",)
        ),
        pieces(("enabled=dtype == torch.float16",), ("enabled=(dtype is torch.float16)",)),
        names("scaler", "grad_scaler", "amp_scaler"),
        *LOOP_NAMES,
    ),
)
