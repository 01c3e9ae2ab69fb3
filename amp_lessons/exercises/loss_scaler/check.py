"""A loss scaler of one's own, checked step by step against PyTorch's."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.audit.watching.device import device_type
from amp_lessons.audit.watching.spies.replacing import replaced
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.loss_scaler.mistakes import SCALE_HINT, mistake
from amp_lessons.exercises.loss_scaler.story import STORIES, Moment, NoGraphError, Story, live
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import SideBySide, Verdict
from amp_lessons.text.describing import describe

_METHODS = ("scale", "unscale_", "step", "update", "get_scale")


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = _not_a_class(attempt)
    if finding is not None:
        return Verdict((finding,))
    first = _examine_story(attempt, STORIES[0])
    if not first.findings[0].ok:
        return first
    second = _examine_story(attempt, STORIES[1])
    return first if second.findings[0].ok else second


def _examine_story(attempt: Any, story: Story) -> Verdict:
    borrowed: list[str] = []
    progress: list[str] = []
    with replaced(torch.amp.GradScaler, "__init__", lambda original: _noticed(original, borrowed)):
        outcome = sandbox.call(live, lambda: attempt(**story.settings), story.events, progress)
    finding = _conduct(outcome, borrowed, progress)
    if finding is not None:
        return Verdict((finding,))
    pytorchs = torch.amp.GradScaler(device_type(), **story.settings)
    right = live(lambda: pytorchs, story.events, [])
    timeline = _timeline(right, outcome.value)
    for count, theirs in enumerate(right):
        finding = mistake(outcome.value, count, theirs)
        if finding is not None:
            return Verdict((finding,), timeline)
    return Verdict(_WHAT_HOLDS, timeline)


def _not_a_class(attempt: Any) -> Finding | None:
    if not inspect.isclass(attempt):
        return failed(
            "not_a_class",
            f"the check was given {describe(attempt)}, not the class LossScaler",
            "pass the class itself, without making an instance",
        )
    missing = [name for name in _METHODS if not callable(getattr(attempt, name, None))]
    if missing:
        return failed(
            "method_missing", f"the class has no method {', '.join(missing)}", "write all five methods"
        )
    return common_findings.uncallable(attempt, "LossScaler", **STORIES[0].settings)


def _noticed(original: Any, borrowed: list[str]) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        borrowed.append(type(self).__name__)
        original(self, *args, **kwargs)

    return __init__


def _conduct(outcome: sandbox.Outcome, borrowed: list[str], progress: list[str]) -> Finding | None:
    finding = common_findings.not_attempted(outcome)
    if finding is not None and len(progress) > 1:
        return common_findings.unwritten_part(outcome, progress[-1])
    if finding is not None or (finding := common_findings.misconduct(outcome)) is not None:
        return finding
    if borrowed:
        return failed(
            "uses_grad_scaler",
            "the class leaves its work to torch.amp.GradScaler",
            "write the five methods with plain tensor operations; that is the exercise",
        )
    if isinstance(outcome.error, NoGraphError):
        return failed(
            "scale",
            f"scale(loss) returned {outcome.error}, from which backward() cannot reach the parameters",
            SCALE_HINT,
        )
    if outcome.error is not None:
        return common_findings.raised(
            outcome, f"in or after {progress[-1]}, iteration {progress.count('update') + 1}"
        )
    return None


def _timeline(right: list[Moment], seen: list[Moment]) -> tuple[SideBySide, ...]:
    try:
        yours = tuple(float(moment.scale_after) for moment in seen)
    except (TypeError, ValueError):
        return ()
    return (SideBySide("scale after each update", "iteration", tuple(m.scale_after for m in right), yours),)


_WHAT_HOLDS = (
    passed("scale", "the loss is multiplied by the scale"),
    passed(
        "unscale",
        "gradients are divided by it once, in unscale_ or in step, also over several parameter groups",
    ),
    passed(
        "step",
        "steps with inf, -inf or NaN gradients are skipped, and only those, also where clipping hid an inf",
    ),
    passed(
        "update",
        "the scale falls after an overflow and grows after growth_interval clean iterations in a row, "
        "also below 1 and beyond 2**32",
    ),
)
