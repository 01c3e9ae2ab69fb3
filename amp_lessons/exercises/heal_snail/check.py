"""The mended loop trains as the exercise of lesson 04 asks for, and is asked the same."""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises.attempt import Attempt
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.train_with_amp.solution import train_with_amp
from amp_lessons.exercises.training_loops import examine


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems."""
    return examine.examine(attempt, train_with_amp)
