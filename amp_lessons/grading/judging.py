"""Judge one attempt: in this process, which asks the learner's by data, or between walls."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, get_args

import torch

from amp_lessons.audit.findings import Finding, FindingKind, failed
from amp_lessons.exercises import checking, shelf
from amp_lessons.exercises.containment.time_limit import PATIENCE
from amp_lessons.exercises.exercise import Exercise
from amp_lessons.exercises.report.results import Report, SideBySide
from amp_lessons.grading.plain_data import UnreadableError, decoded, encoded, error_named
from amp_lessons.grading.processes import EndedError, Limits, Walled

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
        walled.send({"exercise": task.exercise_id, "source": task.source, "limit_s": task.limit_s})
        walled.receive(task.limits.start_s)
        # one limit to be defined, one to be checked
        said = walled.receive(2 * PATIENCE * task.limit_s + _GRACE_S)
    return _from_data(exercise, said)


def _by_proxy(exercise: Exercise, task: Task) -> Report:
    most_s = task.limits.start_s + task.limit_s + _GRACE_S
    with Walled("amp_lessons.grading.there", task.limits, most_s=most_s, hide_exercises=True) as walled:
        walled.send({"source": task.source, "name": exercise.names[0]})
        walled.receive(task.limits.start_s)
        described = walled.receive(PATIENCE * task.limit_s)
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


class StandIn:
    """A function that is somewhere else: arguments go there as data, what it returns comes back as data."""

    def __init__(self, there: Walled, parameters: Any, limit_s: float) -> None:
        """Take the description that ``there`` gave of the function's parameters."""
        self._there, self._limit_s = there, limit_s
        self.__signature__ = _signature(parameters)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it. Raises what it raised, by name, and RuntimeError where its process has ended."""
        try:
            self._there.send({"args": encoded(args), "kwargs": encoded(kwargs)})
            answer = self._there.receive(self._limit_s)
        except EndedError as error:
            raise RuntimeError(f"its process ended: {error}") from None
        try:
            return _taken(answer, args)
        except (UnreadableError, KeyError, TypeError, IndexError) as error:
            if isinstance(answer, dict) and "raised" in answer:
                raise
            raise RuntimeError("its process answered what no function returns") from error


def _taken(answer: dict[str, Any], args: tuple[Any, ...]) -> Any:
    _change(args, decoded(answer["args"]))
    if "raised" in answer:
        name, text, line = map(str, answer["raised"])
        raise error_named(name, f"{text} ({line})" if line and name != "NotImplementedError" else text)
    return decoded(answer["returned"])


def _change(here: Any, there: Any) -> None:
    """Copy what the function did to its arguments into them: a check looks for it."""
    if isinstance(here, torch.Tensor) and isinstance(there, torch.Tensor):
        if here.shape == there.shape and here.dtype == there.dtype:
            with torch.no_grad():
                here.copy_(there)
    elif isinstance(here, list | tuple) and isinstance(there, list | tuple):
        for one, other in zip(here, there, strict=False):
            _change(one, other)


def _signature(parameters: Any) -> inspect.Signature:
    """Make a signature; what is none is one that takes anything."""
    anything = [["args", 2, False], ["kwargs", 4, False]]
    for each in (parameters, anything):
        try:
            return inspect.Signature([_parameter(*one) for one in each])
        except (TypeError, ValueError):
            continue
    raise AssertionError("unreachable")


def _parameter(name: str, kind: int, has_default: bool) -> inspect.Parameter:
    kinds = list(inspect._ParameterKind)
    default = None if has_default else inspect.Parameter.empty
    return inspect.Parameter(name, kinds[kind], default=default)
