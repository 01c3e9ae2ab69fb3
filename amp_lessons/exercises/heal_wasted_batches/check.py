"""The mended loop accumulates as the exercise of lesson 04 asks for, in one backward pass or in several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises.accumulate_gradients.check import PROBLEMS
from amp_lessons.exercises.attempt import Attempt
from amp_lessons.exercises.heal_wasted_batches.solution import train_wasted_batches
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops import examine


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems in windows of batches."""
    problems = tuple(replace(problem, one_backward=True) for problem in PROBLEMS)
    return examine.examine(attempt, train_wasted_batches, problems, ("accumulation_steps",))
