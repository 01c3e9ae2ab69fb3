"""Judge one attempt: in this process, which asks the learner's by data, or between walls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from amp_lessons.audit.findings import Finding, FindingKind, failed
from amp_lessons.exercises import checking, shelf
from amp_lessons.exercises.containment.time_limit import PATIENCE
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report.results import Report, SideBySide
from amp_lessons.grading.plain_data import UnreadableError, decoded
from amp_lessons.grading.processes import EndedError, Limits, Walled
from amp_lessons.grading.stand_in import StandIn

# Their checks hand out data and take data, and watch nothing in between: a test holds both ways of judging
# against each other.
BY_PROXY = frozenset({"activation_bytes", "decode_bits", "largest_safe_scale", "mx_scale", "predict_dtypes"})
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
        return _by_proxy(exercise, task) if task.exercise_id in BY_PROXY else _between_walls(exercise, task)
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
        walled.tell({"exercise": task.exercise_id, "source": task.source, "limit_s": task.limit_s})
        walled.hear(task.limits.start_s)
        # one limit to be defined, one to be checked
        said = walled.hear(2 * PATIENCE * task.limit_s + _GRACE_S)
    return _from_data(exercise, said)


def _by_proxy(exercise: Exercise, task: Task) -> Report:
    most_s = task.limits.start_s + task.limit_s + _GRACE_S
    with Walled("amp_lessons.grading.there", task.limits, most_s=most_s, hide_exercises=True) as walled:
        walled.tell({"source": task.source, "name": exercise.names[0]})
        walled.hear(task.limits.start_s)
        described = walled.hear(PATIENCE * task.limit_s)
        try:
            attempt = _attempt(exercise, walled, described, task.limit_s)
        except (UnreadableError, KeyError, TypeError, IndexError, ValueError):
            return _rejected(exercise, "raised", f"the code could not be defined: {_words(described)}")
        return checking.examine(exercise, attempt, task.limit_s, "inprocess")


def _attempt(exercise: Exercise, walled: Walled, described: Any, limit_s: float) -> Any:
    if "value" in described:
        return decoded(described["value"])
    return StandIn(walled, described["parameters"], PATIENCE * limit_s)


def _words(described: Any) -> str:
    raised = described.get("raised") if isinstance(described, dict) else None
    return ": ".join(map(str, raised))[:_LONGEST] if isinstance(raised, list) else "no sense came from it"


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
