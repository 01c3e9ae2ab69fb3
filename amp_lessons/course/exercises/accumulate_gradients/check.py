"""Gradient accumulation in mixed precision: what belongs to each batch, and what to a window of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.accumulate_gradients.solution import train_with_accumulation
from amp_lessons.course.exercises.loop_runs import STANDARD, Problem
from amp_lessons.course.exercises.loops import Bench

_STEPS = 3
_TINY, _PLAIN, _BFLOAT16, _POISONED, _LARGE_LOSS = (
    replace(problem, accumulation_steps=_STEPS) for problem in STANDARD
)
_WINDOWS = (8,) * 2 * _STEPS
PROBLEMS = (
    replace(_TINY, batch_sizes=_WINDOWS),
    replace(_PLAIN, batch_sizes=_WINDOWS),
    replace(_BFLOAT16, batch_sizes=_WINDOWS),
    # the last window of each epoch is shorter
    Problem(seed=5, dtype=torch.float16, batch_sizes=(8,) * (2 * _STEPS - 1), accumulation_steps=_STEPS),
    # the gradients of one window overflow, then losses: at the end, where what waits would get into the next
    # window, in the middle, and all there is of one
    replace(
        _POISONED,
        batch_sizes=(8,) * (4 * _STEPS + 1),
        poisoned=((1, 8e3), (2 * _STEPS - 1, 1e6), (3 * _STEPS + 1, 1e6), (4 * _STEPS, 1e6)),
    ),
    # some gradients of the batches left over become inf, and others stay what they are
    replace(_POISONED, batch_sizes=(8,) * (3 * _STEPS - 1), poisoned=((1, 8e3), (2 * _STEPS, 8e3)), seed=6),
    replace(_LARGE_LOSS, batch_sizes=_WINDOWS),
)


OF_A_WINDOW = (
    "mean gradient of its window of batches; in a short last window, the sum divided by accumulation_steps "
    "counts as well"
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems in windows of batches."""
    bench = Bench(train_with_accumulation, PROBLEMS, ("accumulation_steps",), applied=OF_A_WINDOW)
    return bench.judge(worker, draw)
