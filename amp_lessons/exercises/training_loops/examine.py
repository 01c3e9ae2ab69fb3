"""Examine a training loop: run it on several problems, and turn what it did into findings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import cuda_replaced
from amp_lessons.exercises.report.results import SideBySide, Verdict
from amp_lessons.exercises.training_loops.mistakes import exceptions, history, precision, updates
from amp_lessons.exercises.training_loops.testbed import Problem, Run, Step, run_loop

_TINY = Problem(seed=0, dtype=torch.float16, loss_weight=2.0**-22)
_PLAIN = Problem(seed=1, dtype=torch.float16)
_BFLOAT16 = Problem(seed=2, dtype=torch.bfloat16)
# the first poisoned batch overflows in the forward pass, the second only in the gradients
_POISONED = Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3)))
STANDARD = (_TINY, _PLAIN, _BFLOAT16, _POISONED)


def examine(
    loop: Any,
    answer: Callable[..., Any],
    name: str,
    problems: tuple[Problem, ...] = STANDARD,
    fields: tuple[str, ...] = (),
) -> Verdict:
    """Run ``loop`` on one problem after another until one shows a mistake.

    ``fields`` of `Problem` are what the loop takes as keyword arguments beyond device_type and dtype,
    "max_norm" for one.
    """
    options = dict.fromkeys(fields)
    finding = common_findings.uncallable(loop, name, *[None] * 5, device_type=None, dtype=None, **options)
    if finding is not None:
        return Verdict((finding,))
    runs: list[Run] = []
    for problem in problems:
        run = run_loop(loop, problem, fields)
        runs.append(run)
        mistakes = _mistakes(run)
        if mistakes and mistakes[0].kind == "todo":
            return Verdict(tuple(mistakes))
        if mistakes:
            return Verdict(tuple(mistakes), _comparisons(run, run, answer, fields))
    plain = next(run for run in runs if run.problem.loss_weight == _PLAIN.loss_weight)
    poisoned = next(run for run in runs if run.problem.poisoned)
    return Verdict((*_what_holds(fields), *_remarks(runs)), _comparisons(plain, poisoned, answer, fields))


def _when(problem: Problem) -> str:
    """Say which run a finding is about, where the learner needs it to reproduce the finding."""
    if problem.poisoned:
        return "seen when two batches overflow in float16"
    return "seen when dtype is torch.bfloat16" if problem.dtype == torch.bfloat16 else ""


def _mistakes(run: Run) -> list[Finding]:
    """List the independent mistakes of one run, the root cause first."""
    outcome, when = run.outcome, _when(run.problem)
    finding = (
        common_findings.not_attempted(outcome)
        or common_findings.misconduct(outcome)
        or history.never_ran(outcome.value)
    )
    if finding is not None:
        return [finding]
    if outcome.error is not None:
        return [exceptions.explain(run, when)]
    found = [precision.first_mistake(run)]
    if found[0] is None or found[0].code in precision.WITHOUT_EFFECT_ON_UPDATES:
        found.append(updates.first_mistake(run))
    found.append(_history_mistake(run))
    return [_about(finding, when) for finding in found if finding is not None]


def _history_mistake(run: Run) -> Finding | None:
    """Judge the history where it can be: a poisoned mean is NaN by right, a tiny one rounds to zero."""
    if run.problem.poisoned or run.problem.loss_weight < 2.0**-15:
        return None
    finding = history.mistake(run)
    return None if finding is None or finding.ok else finding


def _about(finding: Finding, when: str) -> Finding:
    return replace(finding, message=f"{finding.message} ({when})") if when else finding


def _what_holds(fields: tuple[str, ...]) -> list[Finding]:
    findings = [
        passed(
            "precision",
            "the forward ran under autocast in the dtype asked for, the loss was not in half precision, "
            "backward ran outside autocast",
        ),
        passed(
            "scaling", "in float16 backward started from the scaled loss, and very small gradients survived"
        ),
        passed("updates", "every update equals plain SGD on the true gradient"),
        passed(
            "overflow", "batches that overflowed were skipped, the scale was lowered, and training went on"
        ),
        passed("history", "the history holds the mean loss of each epoch"),
    ]
    if "max_norm" in fields:
        findings[2] = passed(
            "updates", "every update equals plain SGD on the true gradient, clipped to max_norm"
        )
    if "accumulation_steps" in fields:
        findings[2] = passed(
            "updates",
            "every update equals plain SGD on the mean gradient of its window of batches; in a short last "
            "window, the sum divided by accumulation_steps counts as well",
        )
    return findings


def _remarks(runs: list[Run]) -> list[Finding]:
    """Collect remarks on style, each once."""
    tapes = [run.tape for run in runs]
    remarks = [
        note(
            "deprecated_api",
            f"{spelling} is deprecated and warns in current PyTorch",
            f"write torch.amp.{spelling.rsplit('.', 1)[-1]}(device_type, …)",
        )
        for spelling in sorted({s for tape in tapes for s in tape.deprecated})
    ]
    if any(tape.hard_coded for tape in tapes):
        remarks.append(
            cuda_replaced(
                "device_type",
                "PyTorch would only warn and switch autocast and the scaler off",
                "pass device_type on to autocast, GradScaler and .to()",
            )
        )
    if any(c.enabled for r in runs if r.problem.dtype == torch.bfloat16 for c in r.calls("scale")):
        remarks.append(
            note(
                "scaler_with_bfloat16",
                "the scaler is also enabled for bfloat16: harmless, the updates are the same bit for bit, "
                "but not needed, since bfloat16 has the exponent range of float32",
                "GradScaler(device_type, enabled=dtype == torch.float16)",
            )
        )
    if not any(run.calls("scale") for run in runs):
        remarks.append(
            note(
                "own_scaling",
                "the loss was scaled by code of your own: right, and torch.amp.GradScaler does the same",
            )
        )
    history_notes = [history.mistake(run) for run in runs if not run.problem.poisoned]
    return remarks + [
        finding for finding in history_notes[:1] if finding is not None and finding.kind == "note"
    ]


def _comparisons(
    loss_run: Run, scale_run: Run, answer: Callable[..., Any], fields: tuple[str, ...]
) -> tuple[SideBySide, ...]:
    """Put losses and scales beside those of the solution on the same problems."""
    reference = run_loop(answer, loss_run.problem, fields)
    found = [_side_by_side("loss of each batch, in the order of training", reference, loss_run, _losses)]
    if scale_run.problem.dtype == torch.float16:
        if scale_run is not loss_run:
            reference = run_loop(answer, scale_run.problem, fields)
        found.append(_side_by_side("loss scale at each batch", reference, scale_run, _scales))
    return tuple(found)


def _side_by_side(quantity: str, reference: Run, run: Run, read: Callable[[Run], list[float]]) -> SideBySide:
    return SideBySide(quantity, "batch", tuple(read(reference)), tuple(read(run)))


def _losses(run: Run) -> list[float]:
    return [step.loss.value for step in run.steps]


def _scales(run: Run) -> list[float]:
    return [_scale(step, run.problem.accumulation_steps) for step in run.steps]


def _scale(step: Step, accumulation_steps: int) -> float:
    """Return by how much the batch's gradients were scaled.

    The gradient that backward started with tells, whoever scaled. Where gradients are accumulated it also
    holds the batch's weight in its window, which the learner chooses; there the scaler is asked, if one was
    used.
    """
    if step.start_gradient is None:
        return math.nan
    scales = [call.scale for call in step.called("scale") if call.enabled]
    return scales[0] if accumulation_steps > 1 and scales else step.start_gradient * accumulation_steps
