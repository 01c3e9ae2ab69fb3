"""Judge one attempt: in this process, which asks the one that the attempt is in, behind a wall."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from amp_lessons._base.worker import client as worker
from amp_lessons.audit.findings import failed
from amp_lessons.course.exercises import bed, checking, shelf
from amp_lessons.course.exercises.exercise import Exercise
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.teaching.grading.processes import EndedError, Limits, walled_host

_FILE = "<submission>"  # as the worker calls it in which the source is defined


@dataclass(frozen=True)
class Task:
    """An attempt to judge: of which exercise, its source, within what."""

    exercise_id: str
    source: str
    limit_s: float
    limits: Limits


def judged(task: Task) -> Report:
    """Return the report on an attempt, whatever it does."""
    exercise = shelf.find(task.exercise_id)
    try:
        return _asked(exercise, task)
    except EndedError as error:
        return _rejected(
            exercise, "process_ended", f"there is no answer from the code that was handed in: {error}"
        )


def not_judged(task: Task) -> Report:
    """Return the report on an attempt that ended the process of its judge, which it should not be able to."""
    return _rejected(
        shelf.find(task.exercise_id), "checker_failed", "the process that judged it has ended, twice"
    )


def _asked(exercise: Exercise, task: Task) -> Report:
    """Judge from here an attempt that is in a worker behind the wall, by the exercise's own judge."""
    limits = worker.Limits(task.limit_s, task.limits.memory_bytes)
    payload = {"source": task.source, "names": list(exercise.names), "lines": {_FILE: task.source}}
    preload = (bed.OPTIMIZERS_NEED,) if exercise.meets_optimizers else ()
    with walled_host(task.limits, task.limits.start_s + limits.wall_s, preload) as hosts:
        said = bed.judged(exercise.id, hosts, payload, limits, secrets.randbits(31), exercise.meets_autocast)
    return checking.reported(exercise, said)


def _rejected(exercise: Exercise, code: str, message: str) -> Report:
    hint = "run the notebook from top to bottom in a fresh kernel, and check again"
    return Report(exercise.id, exercise.title, (failed(code, message, hint),))
