"""Check one attempt: by a judge in a process of its own, always ending in a report."""

from __future__ import annotations

from typing import Any

from amp_lessons.audit.findings import Finding
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.results import Report, SideBySide

_ORDER = {"todo": 0, "failed": 1, "note": 2, "passed": 3}


def examine(exercise: Exercise, attempt: Any, time_limit_s: float, seed: int | None = None) -> Report:
    """Examine ``attempt`` and report, within the limit and without any other effect, whatever it does."""
    return reported(exercise, bed.examine(exercise.id, attempt, time_limit_s, seed))


def reported(exercise: Exercise, said: dict[str, Any]) -> Report:
    """Make a report of what a judge has said, mistakes before remarks before what holds."""
    findings = sorted((Finding(*each) for each in said["findings"]), key=lambda each: _ORDER[each.kind])
    comparisons = tuple(
        SideBySide(quantity, index, tuple(expected), tuple(yours))
        for quantity, index, expected, yours in said["comparisons"]
    )
    return Report(exercise.id, exercise.title, tuple(findings), comparisons, said["printed"], said["seed"])


def not_attempted(exercise: Exercise) -> Report:
    """Report that a patient is still as it came, and what to do; its mistake is for the learner to find."""
    return Report(exercise.id, exercise.title, (common_findings.as_it_came(exercise.names),))
