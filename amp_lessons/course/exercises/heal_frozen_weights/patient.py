"""Weights in bf16, and updates below half the distance to the next bf16 number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import nn

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
from amp_lessons.course.material.data import LabelledImages, batches, digits
from amp_lessons.course.material.models import CLASSES, PIXELS, seeded
from amp_lessons.devices import default_device

_GAINS = 768
_IMAGES, _BATCH, _EPOCHS, _LR = 200, 8, 4, 0.02
_MOVED = f"gains of the layer norm that moved, of {_GAINS}"
_STEPS = "steps made"


def observe(train: Callable[..., Any], seed: int) -> Observed:
    """Train on the digits for a hundred steps: the loss, and how many of the gains are another number."""
    data = digits().train
    some = LabelledImages(data.images[:_IMAGES], data.labels[:_IMAGES])
    device = default_device().type
    loader = batches(some, _BATCH, seed=seed, device=device)
    model = seeded(_classifier, seed).to(device)
    losses = train(model, loader, F.cross_entropy, _EPOCHS, _LR)
    gains = dict(model.named_parameters())["1.weight"]
    moved = int((gains.detach().float() != 1).sum())
    return Observed(
        (Curve("mean loss", "epoch", tuple(losses)),),
        {_STEPS: len(loader) * _EPOCHS, _MOVED: moved},
    )


def _classifier() -> nn.Sequential:
    hidden = nn.Linear(PIXELS, _GAINS), nn.LayerNorm(_GAINS), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(_GAINS, CLASSES))


def shows(seen: Observed) -> bool:
    """Whether no gain moved, while the loss fell; of a healthy run's, nine in ten do."""
    losses = seen.curve("mean loss")
    return seen.numbers[_MOVED] == 0 and losses[-1] < 0.8 * losses[0]


CASE = Case(
    silent=True,
    symptom="The loss falls, if a little slower than it did in fp32, and after a hundred steps every gain "
    "of the layer norm is still exactly 1.",
    code="updates_rounded_away",
    diagnoses=(
        Diagnosis(
            "each update is smaller than half the distance between 1 and the next bf16 number",
            "Adding it rounds back to 1, a hundred times; smaller weights lie where bf16 is finer, and move.",
            right=True,
        ),
        Diagnosis(
            "the gradients of the gains vanish, because the loss is not scaled",
            "bf16 has the exponents of fp32: the gradients are there, of the same size as those of the "
            "biases.",
        ),
        Diagnosis(
            "the gains are not among the parameters that the optimizer steps",
            "It was given model.parameters(), which holds them, after they had been cast.",
        ),
        Diagnosis(
            "the layer norm's output is rounded to bf16, which cuts its graph off",
            "A rounded output still has a graph, and the linear layer before the layer norm does learn.",
        ),
        Diagnosis(
            "the learning rate is too small for this model",
            "With the same learning rate the gains move when the weights are in fp32.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/workofart/ml-by-hand/pull/85",
            "After 100 steps 0 of 768 weights had moved; with fp32 masters 603, in fp32 all of them.",
        ),
        Sighting(
            "https://github.com/vllm-project/speculators/pull/765",
            "All published models of a family had norms whose weights are exactly 1.0.",
        ),
        Sighting(
            "https://github.com/NVIDIA/Model-Optimizer/pull/2322",
            "At step 56,000, 78 % of the norms' entries were still 1; nothing errors, and the loss keeps "
            "falling.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            ("            optimizer.zero_grad()\n", "            optimizer.step()\n"),
            ("", "            optimizer.step()\n            optimizer.zero_grad()\n"),
        ),
        names("outputs", "logits", "predicted"),
        names("loss", "objective", "batch_loss"),
        *LOOP_NAMES,
    ),
)
