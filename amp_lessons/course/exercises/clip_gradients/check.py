"""Clipping under mixed precision: the threshold is meant for true gradients, not for scaled ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.clip_gradients.solution import train_with_clipping
from amp_lessons.course.exercises.loop_runs import STANDARD, Problem
from amp_lessons.course.exercises.loops import Bench

# gradients with norms from 1 to 4, where a threshold other than max_norm shows; then norms around max_norm
_PROBLEMS = (
    Problem(seed=4, dtype=torch.float16, loss_weight=2.0, max_norm=2.0),
    *(replace(problem, max_norm=0.03) for problem in STANDARD),
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems whose gradients must be clipped."""
    bench = Bench(train_with_clipping, _PROBLEMS, ("max_norm",), applied="true gradient, clipped to max_norm")
    return bench.judge(worker, draw)
