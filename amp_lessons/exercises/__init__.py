"""Exercises that check what the learner's code does, and say what is wrong with it.

`catalog` lists them, `check` examines an attempt, `hint` and `solution` help. An attempt is an object of the notebook (a
function, a class, a dict), never a file.
"""

from __future__ import annotations

from typing import Any

from amp_lessons.exercises import catalogue, checking
from amp_lessons.exercises.isolation import Way
from amp_lessons.exercises.results import Exercise, Finding, Hint, Report, SideBySide, Solution

__all__ = [
    "Exercise",
    "Finding",
    "Hint",
    "Report",
    "SideBySide",
    "Solution",
    "catalog",
    "check",
    "hint",
    "solution",
]


def catalog() -> list[Exercise]:
    """List all exercises, in the order of the lessons."""
    return list(catalogue.EXERCISES)


def check(exercise_id: str, attempt: Any, *, time_limit_s: float = 10.0, isolation: Way = "auto") -> Report:
    """Examine ``attempt`` and report what holds and what does not, the root cause first.

    The report comes within ``time_limit_s`` seconds, whatever the attempt does: it may raise, print, loop for ever or end
    its process. ``isolation`` chooses where it runs: "fork" in a child process, "inprocess" in this one, "auto" in a child
    where that is possible. Raises ValueError for an unknown id, KeyboardInterrupt when the user interrupts.
    """
    exercise = catalogue.find(exercise_id)
    return checking.examine(exercise, attempt, time_limit_s, isolation)


def hint(exercise_id: str, number: int) -> Hint:
    """Return hint 1, 2 or 3 of an exercise, from a nudge to nearly there. Raises ValueError for another number."""
    exercise = catalogue.find(exercise_id)
    if number not in range(1, len(exercise.hints) + 1):
        raise ValueError(f"{exercise_id} has hints 1 to {len(exercise.hints)}, there is no hint {number!r}")
    return Hint(exercise_id, number, len(exercise.hints), exercise.hints[number - 1])


def solution(exercise_id: str) -> Solution:
    """Return one right answer to an exercise, with the reasons for it."""
    exercise = catalogue.find(exercise_id)
    return Solution(exercise_id, exercise.answer_source, exercise.explanation, exercise.answer)
