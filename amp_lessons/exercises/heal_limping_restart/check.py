"""The mended checkpoint holds what the exercise of lesson 04 asks for, and is asked the same."""

from __future__ import annotations

from collections.abc import Iterator

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises.attempt import Attempt
from amp_lessons.exercises.resume_training.check import check as check_checkpoints


def check(attempt: Attempt) -> Iterator[Finding]:
    """Save a training that has come some way, load it into a fresh one, and look for what is lost."""
    return check_checkpoints(attempt)
