"""The mended loop accumulates as the exercise of lesson 04 asks for, in one backward pass or in several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons._base.worker import Worker
from amp_lessons.audit.findings import Finding
from amp_lessons.exercises import loops
from amp_lessons.exercises.accumulate_gradients.check import PROBLEMS
from amp_lessons.exercises.heal_wasted_batches.solution import train_wasted_batches
from amp_lessons.exercises.report.results import SideBySide


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems in windows of batches."""
    problems = tuple(replace(problem, one_backward=True) for problem in PROBLEMS)
    return loops.judge(worker, draw, train_wasted_batches, problems, ("accumulation_steps",))
