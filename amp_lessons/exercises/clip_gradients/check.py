"""Clipping under mixed precision: the threshold is meant for true gradients, not for scaled ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from amp_lessons.exercises.report.results import Exercise, Verdict
from amp_lessons.exercises.sources import source_of
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.testbed import Problem

# gradients with norms from 1 to 4, where a threshold other than max_norm shows; then norms around max_norm
_PROBLEMS = (
    Problem(seed=4, dtype=torch.float16, loss_weight=2.0, max_norm=2.0),
    *(replace(problem, max_norm=0.03) for problem in examine.STANDARD),
)


def train_with_clipping(model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype):  # type: ignore[no-untyped-def]
    """Train in mixed precision with gradients clipped to max_norm; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            total += loss.item()
        history.append(total / len(loader))
    return history


def _examine(attempt: Any) -> Verdict:
    return examine.examine(attempt, train_with_clipping, "train_with_clipping", _PROBLEMS, ("max_norm",))


EXERCISE = Exercise(
    id="clip_gradients",
    title="Clip gradients that were scaled",
    lesson="04",
    difficulty=2,
    minutes=10,
    names=("train_with_clipping",),
    task=(
        "Extend the mixed precision loop: before each step, clip the gradient so that its total norm "
        "over all parameters is at most `max_norm`. Return the mean loss of each epoch as a list of "
        "floats."
    ),
    stub='''def train_with_clipping(
    model, loader, optimizer, loss_fn, epochs, *, max_norm, device_type, dtype
):
    """Train in mixed precision with gradients clipped to max_norm; return the mean loss of each epoch."""
    raise NotImplementedError
''',
    hints=(
        "After `scaler.scale(loss).backward()` every gradient is still multiplied by the loss scale. "
        "What would a threshold of 1 do to a gradient whose true norm is 0.5?",
        "One method of the scaler divides the gradients by the scale without stepping. It may be called "
        "once per iteration, and `scaler.step` will notice that it was.",
        "The order is `backward`, `scaler.unscale_(optimizer)`, "
        "`torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`, `scaler.step(optimizer)`, "
        "`scaler.update()`.",
    ),
    explanation=(
        "`unscale_` divides the gradients by the scale in place and remembers whether one of them was "
        "inf or NaN; only then do they have the size that `max_norm` is about. `step` does not divide "
        "again and still skips after an overflow. Clipped before `unscale_`, the update would have the "
        "norm `max_norm / scale`, and with SGD training would stand still."
    ),
    answer=train_with_clipping,
    answer_source=source_of(train_with_clipping),
    examine=_examine,
)
