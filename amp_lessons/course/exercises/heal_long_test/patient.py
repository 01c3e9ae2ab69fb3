"""Metrics summed in the model's 16 bits: a counter that stops while the test goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.course.exercises.patients.case import (
    Case,
    Curve,
    Diagnosis,
    Observed,
    Sighting,
    names,
    pieces,
)
from amp_lessons.course.material.data import batches, digits
from amp_lessons.course.material.models import digits_classifier
from amp_lessons.devices import default_device

_LENGTHS = (128, 256, 512, 1024)
_EPOCHS, _BATCH, _LR = 4, 32, 0.3
_ACCURACY, _LOSS, _OVER = "accuracy", "mean loss", "number of images"


def observe(evaluate: Callable[..., Any], seed: int) -> Observed:
    """Train a classifier of the digits, cast it to bf16, and test it on more and more images, one by one."""
    model = _trained(seed).to(torch.bfloat16)
    data = digits().train
    images, labels = (
        data.images.to(default_device().type, torch.bfloat16),
        data.labels.to(default_device().type),
    )
    seen = [
        evaluate(model, list(zip(images[:length].split(1), labels[:length].split(1), strict=True)))
        for length in _LENGTHS
    ]
    losses, accuracies = zip(*seen, strict=True)
    return Observed(
        (Curve(_ACCURACY, _OVER, accuracies, _LENGTHS), Curve(_LOSS, _OVER, losses, _LENGTHS)), {}
    )


def _trained(seed: int) -> nn.Module:
    model = digits_classifier(32, seed=seed).to(default_device().type)
    optimizer = torch.optim.SGD(model.parameters(), lr=_LR)
    for _ in range(_EPOCHS):
        for inputs, labels in batches(digits().train, _BATCH, seed=seed, device=default_device().type):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
    return model


def shows(seen: Observed) -> bool:
    """Whether the accuracy falls by half at least from the shortest test to the longest."""
    accuracies = seen.curve(_ACCURACY)
    return accuracies[0] > 0.8 and accuracies[-1] < 0.5 * accuracies[0]


CASE = Case(
    silent=True,
    symptom="On a short test the model is good; on a longer one of the same kind its accuracy is far "
    "lower, although its mean loss is no higher.",
    code="metric_stops",
    diagnoses=(
        Diagnosis(
            "right answers and losses are summed in the dtype of the model, and the sums stop growing",
            "In bf16 256 + 1 is 256; the number of samples is a Python integer, which goes on.",
            right=True,
        ),
        Diagnosis(
            "the model is worse on the later images",
            "Then its loss on them would be higher, and the mean loss would rise.",
        ),
        Diagnosis(
            "the logits are so coarse in bf16 that classes tie",
            "A tie costs as much on a short test as on a long one.",
        ),
        Diagnosis(
            "the batches' accuracies are averaged, whatever the batches' sizes",
            "Right answers are counted and divided in the end, and all of these batches are of one size.",
        ),
        Diagnosis(
            "dropout or batch norm is still in training mode",
            "This model has neither, and it would show on a short test too.",
        ),
    ),
    seen_at=(
        Sighting(
            "https://github.com/pytorch/xla/pull/2425",
            "In bf16 the sum of the losses stops growing, while the number they are divided by goes on.",
        ),
        Sighting(
            "https://github.com/pytorch/executorch/pull/20090",
            "Kernels that summed in bf16 stopped at 256: one over 256 where one over 512 was due.",
        ),
        Sighting(
            "https://github.com/jax-ml/ml_dtypes/issues/63",
            "The sum of 10,000 numbers in bf16 was 256, and so was that of 20,000.",
        ),
    ),
    observe=observe,
    shows=shows,
    choices=(
        pieces(
            (
                "        correct += (logits.argmax(dim=-1) == targets).sum()\n",
                "        samples += len(targets)\n",
            ),
            (
                "        samples += targets.numel()\n",
                "        correct += (logits.argmax(dim=-1) == targets).sum()\n",
            ),
            (
                "        correct += logits.argmax(dim=-1).eq(targets).sum()\n",
                "        samples += targets.shape[0]\n",
            ),
        ),
        names("logits", "outputs", "scores"),
        names("inputs, targets", "x, y", "pixels, labels"),
        names("loss_sum", "loss_total", "summed"),
        names("correct", "hits", "right"),
        names("samples", "images", "rows"),
    ),
)
