"""The mended loop accumulates as the exercise of lesson 04 asks for, in one backward pass or in several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.accumulate_gradients.check import OF_A_WINDOW, PROBLEMS
from amp_lessons.course.exercises.heal_wasted_batches.solution import train_wasted_batches
from amp_lessons.course.exercises.loops import Bench


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems in windows of batches."""
    problems = tuple(replace(problem, one_backward=True) for problem in PROBLEMS)
    bench = Bench(train_wasted_batches, problems, ("accumulation_steps",), applied=OF_A_WINDOW)
    return bench.judge(worker, draw)
