"""Judge one attempt: in this process, which asks the learner's by data, or between walls."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, get_args

from amp_lessons._base.worker import client as worker
from amp_lessons.audit.findings import Finding, FindingKind, failed
from amp_lessons.exercises import bed, checking, shelf
from amp_lessons.exercises.containment.time_limit import PATIENCE
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report.results import Report, SideBySide
from amp_lessons.grading.inside import FILE
from amp_lessons.grading.processes import EndedError, Limits, Walled, walled_host

_GRACE_S = 10.0
_LONGEST = 2000  # characters of a message, a hint or what was printed
_MOST_FINDINGS, _MOST_NUMBERS = 50, 1000


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
        return _on_the_bench(exercise, task) if exercise.is_on_bench else _between_walls(exercise, task)
    except EndedError as error:
        return _rejected(
            exercise, "process_ended", f"there is no answer from the code that was handed in: {error}"
        )


def not_judged(task: Task) -> Report:
    """Return the report on an attempt that ended the process of its judge, which it should not be able to."""
    return _rejected(
        shelf.find(task.exercise_id), "checker_failed", "the process that judged it has ended, twice"
    )


def _between_walls(exercise: Exercise, task: Task) -> Report:
    most_s = task.limits.start_s + task.limit_s + _GRACE_S
    with Walled("amp_lessons.grading.inside", task.limits, most_s=most_s) as walled:
        walled.send({"exercise": task.exercise_id, "source": task.source, "limit_s": task.limit_s})
        walled.receive(task.limits.start_s)
        # one limit to be defined, one to be checked
        said = walled.receive(2 * PATIENCE * task.limit_s + _GRACE_S)
    return _from_data(exercise, said)


def _on_the_bench(exercise: Exercise, task: Task) -> Report:
    """Judge from here an attempt that is in a worker behind the wall, by the exercise's own judge."""
    limits = worker.Limits(task.limit_s, task.limits.memory_bytes)
    payload = {"source": task.source, "names": list(exercise.names), "lines": {FILE: task.source}}
    with walled_host(task.limits, task.limits.start_s + PATIENCE * task.limit_s) as hosts:
        said = bed.judged(exercise.id, hosts, payload, limits, secrets.randbits(31), exercise.meets_autocast)
    return checking.reported(exercise, said)


def _from_data(exercise: Exercise, said: Any) -> Report:
    """Make a report of data: of what is none, one that gives no points."""
    try:
        findings = tuple(_finding(*each) for each in said["findings"][:_MOST_FINDINGS])
        comparisons = tuple(_comparison(*each) for each in said["comparisons"][:_MOST_FINDINGS])
        return Report(
            exercise.id, exercise.title, findings, comparisons, str(said["printed"])[: 2 * _LONGEST]
        )
    except (KeyError, TypeError, ValueError):
        return _rejected(exercise, "process_ended", "what came from the check is no report")


def _finding(kind: FindingKind, code: str, message: str, hint: str) -> Finding:
    if kind not in get_args(FindingKind):
        raise ValueError
    return Finding(str(code)[:100], kind, str(message)[:_LONGEST], str(hint)[:_LONGEST])


def _comparison(quantity: str, index: str, expected: list[float], yours: list[float]) -> SideBySide:
    numbers = [tuple(map(float, values[:_MOST_NUMBERS])) for values in (expected, yours)]
    return SideBySide(str(quantity)[:200], str(index)[:200], *numbers)


def _rejected(exercise: Exercise, code: str, message: str) -> Report:
    hint = "run the notebook from top to bottom in a fresh kernel, and check again"
    return Report(exercise.id, exercise.title, (failed(code, message, hint),))
