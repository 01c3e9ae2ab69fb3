"""The exercise at the heart of the course: the mixed precision training loop."""

from __future__ import annotations

from typing import Any

from amp_lessons.exercises.report.results import Verdict
from amp_lessons.exercises.train_with_amp.solution import train_with_amp
from amp_lessons.exercises.training_loops import examine


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    return examine.examine(attempt, train_with_amp, "train_with_amp")
