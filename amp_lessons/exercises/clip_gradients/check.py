"""Clipping under mixed precision: the threshold is meant for true gradients, not for scaled ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from amp_lessons.exercises.clip_gradients.solution import train_with_clipping
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.testbed import Problem

# gradients with norms from 1 to 4, where a threshold other than max_norm shows; then norms around max_norm
_PROBLEMS = (
    Problem(seed=4, dtype=torch.float16, loss_weight=2.0, max_norm=2.0),
    *(replace(problem, max_norm=0.03) for problem in examine.STANDARD),
)


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    return examine.examine(attempt, train_with_clipping, "train_with_clipping", _PROBLEMS, ("max_norm",))
