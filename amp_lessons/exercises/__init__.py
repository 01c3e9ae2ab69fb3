"""Exercises that check what the learner's code does, and say what is wrong with it.

``catalog`` lists them, ``check`` examines an attempt, ``hint`` and ``solution`` help. An attempt is an object
of the notebook (a function, a class, a dict), never a file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from amp_lessons import classroom
from amp_lessons.audit.findings import Finding, note
from amp_lessons.exercises import checking, shelf
from amp_lessons.exercises.containment.isolation import Way
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.overviews import Overview, overview, so_far
from amp_lessons.exercises.repetition import due_for_repetition, record_check
from amp_lessons.exercises.report.results import Hint, OtherWay, Report, SideBySide, Solution
from amp_lessons.keeping import progress

__all__ = [
    "Exercise",
    "Finding",
    "Hint",
    "OtherWay",
    "Overview",
    "Report",
    "SideBySide",
    "Solution",
    "catalog",
    "check",
    "due_for_repetition",
    "hint",
    "overview",
    "so_far",
    "solution",
]


def catalog() -> list[Exercise]:
    """List all exercises, in the order of the lessons."""
    return list(shelf.exercises())


def check(exercise_id: str, attempt: Any, *, time_limit_s: float = 10.0, isolation: Way = "auto") -> Report:
    """Examine ``attempt`` and report what holds and what does not, the root cause first.

    The report comes within ``time_limit_s`` seconds, whatever the attempt does: it may raise, print, loop for
    ever or end its process. Meanwhile ``torch.compile`` compiles nothing. The try is recorded in the
    learner's progress. ``isolation`` chooses where it runs: "fork" in a child process, "inprocess" in this
    one, "auto" in a child where that is possible. What a solved exercise does counts when it is due for
    repetition. Raises ValueError for an unknown id, KeyboardInterrupt when
    the user interrupts.
    """
    if not time_limit_s > 0:
        raise ValueError(f"time_limit_s must be a positive number of seconds, not {time_limit_s!r}")
    report = checking.examine(shelf.find(exercise_id), attempt, time_limit_s, isolation)
    if not report.attempted:
        return report
    report = _with_note(report, "progress_file", _told(lambda: record_check(exercise_id, report.passed)))
    return _with_note(report, "live_room", classroom.solved(exercise_id) if report.passed else "")


def _told(record: Callable[[], str]) -> str:
    """Record progress; a folder that cannot be written to must not keep anyone from learning."""
    try:
        return record()
    except progress.ProgressError as error:
        return str(error)


def _with_note(report: Report, code: str, message: str) -> Report:
    if not message:
        return report
    return replace(report, findings=(*report.findings, note(code, message)))


def hint(exercise_id: str, number: int) -> Hint:
    """Return hint 1, 2 or 3 of an exercise, from a nudge to nearly there. Raises ValueError for others.

    Its ``message`` says what is wrong with the progress file, if anything is.
    """
    exercise = shelf.find(exercise_id)
    if number not in range(1, len(exercise.hints) + 1):
        raise ValueError(f"{exercise_id} has hints 1 to {len(exercise.hints)}, there is no hint {number!r}")
    message = _told(lambda: progress.record_hint(exercise_id, number))
    return Hint(exercise_id, number, len(exercise.hints), exercise.hints[number - 1], message)


def solution(exercise_id: str) -> Solution:
    """Return a right answer to an exercise, why it is right, and other ways; ``message`` as with ``hint``."""
    exercise = shelf.find(exercise_id)
    message = _told(lambda: progress.record_solution(exercise_id))
    return Solution(
        exercise_id,
        exercise.solution_source,
        exercise.explanation,
        exercise.solution,
        message,
        exercise.other_ways,
    )
