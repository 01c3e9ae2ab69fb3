"""Exercises that check what the learner's code does, and say what is wrong with it.

``catalog`` lists them, ``check`` examines an attempt, ``hint`` and ``solution`` help. An attempt is an object
of the notebook (a function, a class, a dict), never a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from amp_lessons.audit.findings import Finding, note
from amp_lessons.course import classroom, progress
from amp_lessons.course.exercises import repetition, shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.overviews import Overview, overview, so_far
from amp_lessons.course.exercises.own_code import is_still, source_of
from amp_lessons.course.exercises.repetition import due_for_repetition
from amp_lessons.course.exercises.report.results import Hint, OtherWay, Report, SideBySide, Solution
from amp_lessons.course.progress import Learner, ProgressError, Version, Written

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
    "written_by_you",
]


def catalog() -> list[Exercise]:
    """List all exercises, in the order of the lessons."""
    return list(shelf.exercises())


def check(exercise_id: str, attempt: Any, *, time_limit_s: float = 10.0, seed: int | None = None) -> Report:
    """Examine ``attempt`` and report what holds and what does not, the root cause first.

    A stub that nobody has changed is not attempted yet, also that of a patient, which runs: no try is
    recorded, and nothing is said of its mistake. Where its source cannot be had, a patient is examined.
    The report comes, whatever the attempt does: it may raise, print, loop for ever or end its process, which
    is another than this one. An attempt has ``time_limit_s`` seconds of processor time, and for all that it
    waits six times as many by the clock, so that a busy machine stops nothing. The try is recorded in the
    learner's progress. What a solved exercise does counts when it is due for repetition and written anew.
    Cases are drawn anew at each check, or as with the ``seed``, from 0 to 2**31 - 1, that a refusal tells.
    Raises ValueError for an unknown id or another seed, KeyboardInterrupt when the user interrupts.
    """
    if not time_limit_s > 0:
        raise ValueError(f"time_limit_s must be a positive number of seconds, not {time_limit_s!r}")
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**31):
        raise ValueError(f"seed must be an integer from 0 to 2**31 - 1, as a report tells it, not {seed!r}")
    # PyTorch comes with these: what was done is shown without
    from amp_lessons.course.exercises import bed
    from amp_lessons.course.exercises.report import common_findings

    exercise = shelf.find(exercise_id)
    if exercise.is_patient and is_still(attempt, exercise.stub):  # its mistake is for the learner to find
        said = bed.unjudged(common_findings.as_it_came(exercise.names))
    else:
        said = bed.examine(exercise_id, attempt, time_limit_s, seed)
    report = Report.from_judge(exercise_id, exercise.title, said)
    try:
        report = _recorded(report, source_of(attempt))
    except ProgressError as error:  # must not keep anyone from learning
        report = _with_note(report, "progress_file", str(error))
    return _with_note(report, "live_room", classroom.solved(exercise_id) if report.passed else "")


def _recorded(report: Report, source: str) -> Report:
    """Record what a check came to; code that was to be written again, and was not, does not count."""
    id, still = report.exercise_id, None

    def record(kept: Learner) -> None:
        nonlocal still
        still = repetition.handed_in_again(id, source, kept) if report.attempted else None
        if report.attempted and still is None:
            repetition.record_check(id, report.passed, source, kept)
        elif not report.attempted and repetition.is_due(id, kept):
            kept.keep_emptied(id)  # what follows is written anew

    report = _with_note(report, "progress_file", progress.change(record))
    return report if still is None else replace(report, findings=(*report.findings, _same_as(still)))


def _same_as(old: Version) -> Finding:
    return note(
        "same_code",
        f"this is the code that passed on {old.at[:10]}; a repetition is to write it again, so this does not "
        "count as one",
        "empty the cell down to its stub, check that once, then write it from memory; what stands there now "
        "is kept",
    )


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
    message = progress.try_changing(lambda kept: kept.record_hint(exercise_id, number))
    return Hint(exercise_id, number, len(exercise.hints), exercise.hints[number - 1], message)


def solution(exercise_id: str) -> Solution:
    """Return a right answer to an exercise, why it is right, and other ways; ``message`` as with ``hint``."""
    exercise = shelf.find(exercise_id)
    message = progress.try_changing(lambda kept: kept.record_solution(exercise_id))
    told = exercise.solution_source, exercise.explanation, exercise.solution
    return Solution(exercise_id, *told, message, exercise.other_ways)


def written_by_you(exercise_id: str) -> Written:
    """Return the code with which you have solved an exercise, the newest last. Raises ProgressError."""
    return progress.read().written.get(shelf.find(exercise_id).id, Written())
