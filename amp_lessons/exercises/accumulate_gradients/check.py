"""Gradient accumulation in mixed precision: what belongs to each batch, and what to a window of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from amp_lessons.exercises.report.results import Exercise, Verdict
from amp_lessons.exercises.sources import source_of
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.testbed import Problem

_STEPS = 3
_TINY, _PLAIN, _BFLOAT16, _POISONED = (
    replace(problem, accumulation_steps=_STEPS) for problem in examine.STANDARD
)
_WINDOWS = (8,) * 2 * _STEPS
_PROBLEMS = (
    replace(_TINY, batch_sizes=_WINDOWS),
    replace(_PLAIN, batch_sizes=_WINDOWS),
    replace(_BFLOAT16, batch_sizes=_WINDOWS),
    # the first and the last of three windows contain a batch that overflows
    replace(_POISONED, batch_sizes=(8,) * 3 * _STEPS, poisoned=((1, 1e6), (7, 8e3))),
    # the last window of each epoch is shorter
    Problem(seed=5, dtype=torch.float16, batch_sizes=(8,) * (2 * _STEPS - 1), accumulation_steps=_STEPS),
)


def train_with_accumulation(  # type: ignore[no-untyped-def]
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    """Train with one update per accumulation_steps batches; return the mean loss of each epoch."""
    scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16)
    history = []
    for _ in range(epochs):
        total = 0.0
        for i, (inputs, targets) in enumerate(loader):
            with torch.autocast(device_type, dtype=dtype):
                loss = loss_fn(model(inputs), targets)
            scaler.scale(loss / accumulation_steps).backward()
            if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            total += loss.item()
        history.append(total / len(loader))
    return history


def _examine(attempt: Any) -> Verdict:
    return examine.examine(
        attempt, train_with_accumulation, "train_with_accumulation", _PROBLEMS, ("accumulation_steps",)
    )


EXERCISE = Exercise(
    id="accumulate_gradients",
    title="Accumulate gradients over several batches",
    lesson="04",
    difficulty=3,
    minutes=15,
    names=("train_with_accumulation",),
    task=(
        "Extend the mixed precision loop: update the weights once per window of `accumulation_steps` "
        "batches, with the gradient of the mean of their losses. If batches are left over at the end of "
        "an epoch, step on them too; dividing their losses by `accumulation_steps` is fine, and by their "
        "own number as well. Return the mean (undivided) loss of each epoch as a list of "
        "floats."
    ),
    stub='''def train_with_accumulation(
    model, loader, optimizer, loss_fn, epochs, *, accumulation_steps, device_type, dtype
):
    """Train with one update per accumulation_steps batches; return the mean loss of each epoch.

    The last window of an epoch may have fewer batches; it is applied as well.
    """
    raise NotImplementedError
''',
    hints=(
        "`backward` adds to the gradients that are there. Which of `zero_grad`, `scale`, `backward`, "
        "`step` and `update` must then happen for every batch, and which only once per window?",
        "All gradients of a window must be multiplied by the same scale, so nothing that unscales them "
        "or changes the scale may happen within it. The mean over the window comes from dividing each "
        "loss.",
        "For every batch: `scaler.scale(loss / accumulation_steps).backward()`. When `(i + 1) % "
        "accumulation_steps == 0`, and after the last batch: `scaler.step(optimizer)`, "
        "`scaler.update()`, `optimizer.zero_grad()`.",
    ),
    explanation=(
        "Gradients of one window are added while they are all multiplied by the same scale; `step` "
        "unscales their sum once, and `update` may change the scale only between windows. Dividing each "
        "loss by `accumulation_steps` makes the sum the gradient of the mean, and leaves float16 more "
        "headroom. An overflow in one batch makes the whole window's gradient inf or NaN, so the whole "
        "window is skipped."
    ),
    answer=train_with_accumulation,
    answer_source=source_of(train_with_accumulation),
    examine=_examine,
)
