"""A loss scaler of one's own, checked step by step against PyTorch's."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NoReturn

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.exercises.attempt import (
    Attempt,
    Rejected,
    callable_with,
    outcome_of,
    reject,
    require_none,
)
from amp_lessons.exercises.loss_scaler.mistakes import mistakes, wrong_scaled_loss
from amp_lessons.exercises.loss_scaler.remarks import remarks as remarks_on
from amp_lessons.exercises.loss_scaler.scenarios import (
    SCENARIOS,
    Iteration,
    NoGraphError,
    NoMethodError,
    Scenario,
    step_through,
)
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import float_in
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Take the scaler through overflows and clean iterations, beside PyTorch's."""
    _require_class(attempt.value)
    remarks: list[Finding] = []
    timelines = [_require_the_same_as_pytorchs(attempt.value, scenario, remarks) for scenario in SCENARIOS]
    yield passed("scale", "the loss is multiplied by the scale")
    yield passed(
        "unscale",
        "gradients are divided by it once, in unscale_ or in step, also over several parameter groups",
    )
    yield passed(
        "step",
        "steps with inf, -inf or NaN gradients are skipped, and only those, also where clipping hid an inf",
    )
    yield passed(
        "update",
        "the scale falls after an overflow and grows after growth_interval clean iterations in a row, "
        "also below 1 and beyond 2**32",
    )
    yield from remarks
    yield from timelines[0]


def _require_class(attempt: Any) -> None:
    if not inspect.isclass(attempt):
        reject(
            "not_a_class",
            f"the check was given {describe(attempt)}, not the class LossScaler",
            "pass the class itself, without making an instance",
        )
    callable_with(attempt, "LossScaler", **SCENARIOS[0].settings)


def _require_the_same_as_pytorchs(
    attempt: type, scenario: Scenario, remarks: list[Finding]
) -> tuple[SideBySide, ...]:
    """Return the scales of both, iteration by iteration; add what is to be remarked to ``remarks``."""
    seen = _iterations(attempt, scenario)
    pytorchs = torch.amp.GradScaler(device_type(), **scenario.settings)
    right = step_through(lambda: pytorchs, scenario.events, [])
    timeline = _timeline(right, seen)
    for count, theirs in enumerate(right):
        require_none(mistakes(seen, count, theirs), *timeline)
    remarks += remarks_on(seen)
    return timeline


def _iterations(attempt: type, scenario: Scenario) -> list[Iteration]:
    borrowed: list[str] = []
    progress: list[str] = []
    with replaced(torch.amp.GradScaler, "__init__", lambda original: _noticed(original, borrowed)):
        outcome = outcome_of(
            step_through,
            lambda: attempt(**scenario.settings),
            scenario.events,
            progress,
            part=lambda: progress[-1] if len(progress) > 1 else "",
        )
    if borrowed:
        reject(
            "uses_grad_scaler",
            "the class leaves its work to torch.amp.GradScaler",
            "write the five methods with plain tensor operations; that is the exercise",
        )
    if isinstance(outcome.error, NoMethodError):
        _reject_no_method(outcome.error.instead)
    if isinstance(outcome.error, NoGraphError):
        raise Rejected(
            wrong_scaled_loss(f"{outcome.error}, from which backward() cannot reach the parameters")
        )
    if outcome.error is not None:
        where = f"in or after {progress[-1]}, iteration {progress.count('update') + 1}"
        raise Rejected(common_findings.raised(outcome, where))
    return list(outcome.value)


def _reject_no_method(instead: dict[str, Any]) -> NoReturn:
    for name, value in instead.items():
        if value is not None:
            reject(
                "method_hidden",
                f"scaler.{name} is no method but {describe(value)}: what self.{name} was set to hides the "
                "method of the same name",
                f"give one of the two another name, as self._{name.strip('_')} for what is remembered",
            )
    reject("method_missing", f"the class has no method {', '.join(instead)}", "write all five methods")


def _noticed(original: Any, borrowed: list[str]) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        borrowed.append(type(self).__name__)
        original(self, *args, **kwargs)

    return __init__


def _timeline(right: list[Iteration], seen: list[Iteration]) -> tuple[SideBySide, ...]:
    yours = tuple(
        scale for scale in (float_in(iteration.scale_after) for iteration in seen) if scale is not None
    )
    if len(yours) < len(right):
        return ()
    expected = tuple(iteration.scale_after for iteration in right)
    return (SideBySide("scale after each update", "iteration", expected, yours),)
