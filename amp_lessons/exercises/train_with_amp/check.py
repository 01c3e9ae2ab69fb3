"""The exercise at the heart of the course: the mixed precision training loop."""

from __future__ import annotations

from typing import Any

import torch

from amp_lessons.exercises.report.results import Exercise, Verdict
from amp_lessons.exercises.sources import source_of
from amp_lessons.exercises.training_loops import examine


def train_with_amp(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):  # type: ignore[no-untyped-def]
    """Train in mixed precision; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history


def _examine(attempt: Any) -> Verdict:
    return examine.examine(attempt, train_with_amp, "train_with_amp")


EXERCISE = Exercise(
    id="train_with_amp",
    title="The mixed precision training loop",
    lesson="04",
    difficulty=3,
    minutes=20,
    names=("train_with_amp",),
    task=(
        "Write the training loop in mixed precision. Forward and loss run under autocast in `dtype`; in "
        "float16 the loss is scaled, and a batch whose gradients overflow is skipped. Return the mean "
        "loss of each epoch as a list of floats. Model and batches are already on the device."
    ),
    stub='''def train_with_amp(model, loader, optimizer, loss_fn, epochs, *, device_type, dtype):
    """Train in mixed precision; return the mean loss of each epoch as a list of floats."""
    raise NotImplementedError
''',
    hints=(
        "Start from the loop in float32. Two objects are new: one decides the dtype of each operation, "
        "the other keeps small float16 gradients from vanishing. Which part of the loop does each of "
        "them belong around?",
        "Open `torch.autocast(device_type, dtype=dtype)` in every iteration, around `model(inputs)` and "
        "`loss_fn` only. Make one `torch.amp.GradScaler` before the first epoch, enabled only for "
        "float16.",
        "After the `with` block: `scaler.scale(loss).backward()`, then `scaler.step(optimizer)`, then "
        "`scaler.update()`. Add `loss.item()` to the epoch's total, and zero the gradients before the "
        "next forward.",
    ),
    explanation=(
        "`autocast` is entered anew for each batch, so its cache of 16-bit weights never outlives a "
        "step, and it ends before backward, whose operations already have the dtype of their forward. "
        "The scaler multiplies the loss before backward, divides the gradients before the step, skips "
        "the step when one of them is inf or NaN, and adapts its scale in `update()`. With "
        "`enabled=False` each of its methods passes through, so the same loop serves bfloat16."
    ),
    answer=train_with_amp,
    answer_source=source_of(train_with_amp),
    examine=_examine,
)
