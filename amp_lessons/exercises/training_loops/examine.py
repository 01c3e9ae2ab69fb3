"""Examine a training loop: run it on several problems, and turn what it did into findings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, first, note, passed
from amp_lessons.exercises.attempt import Attempt, Rejected
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops.mistakes import exceptions, history, precision, updates
from amp_lessons.exercises.training_loops.testbed import Problem, Run, Step, run_loop
from amp_lessons.exercises.training_loops.window import Window, windows
from amp_lessons.precisions import HALVES

_TINY = Problem(seed=0, dtype=torch.float16, loss_weight=2.0**-22)
_PLAIN = Problem(seed=1, dtype=torch.float16)
_BFLOAT16 = Problem(seed=2, dtype=torch.bfloat16)
# the first poisoned batch overflows in the forward pass, the second only in the gradients
_POISONED = Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3)))
_COUNTED = ("no", "one", "two", "three", "four")
STANDARD = (_TINY, _PLAIN, _BFLOAT16, _POISONED)


def examine(
    attempt: Attempt,
    answer: Callable[..., Any],
    problems: tuple[Problem, ...] = STANDARD,
    fields: tuple[str, ...] = (),
) -> Iterator[Finding | SideBySide]:
    """Run a loop on one problem after another until one shows a mistake; ``answer`` is the solution.

    ``fields`` of ``Problem`` are what the loop takes as keyword arguments beyond device_type and dtype,
    "max_norm" for one.
    """
    options = dict.fromkeys(fields)
    loop = attempt.function(*[None] * 5, device_type=None, dtype=None, **options).function
    runs: list[Run] = []
    for problem in problems:
        run = run_loop(loop, problem, fields)
        if mistakes := _mistakes(run):
            raise Rejected(*mistakes, *_comparisons(run, run, answer, fields))
        runs.append(run)
    yield from _what_holds(fields, runs)
    yield from _remarks(runs)
    plain = next(run for run in runs if run.problem.loss_weight == _PLAIN.loss_weight)
    poisoned = next(run for run in runs if run.problem.poisoned)
    yield from _comparisons(plain, poisoned, answer, fields)


def _mistakes(run: Run) -> list[Finding]:
    """List the independent mistakes of one run, the root cause first."""
    when = _when(run.problem)
    if run.outcome.error is not None:
        return [exceptions.explained(run, when)]
    nothing_ran = first(history.never_ran(run.outcome.value))
    if nothing_ran is not None:
        return [nothing_ran]
    found = [first(precision.mistakes(run))]
    if found[0] is None or found[0].code in precision.WITHOUT_EFFECT_ON_UPDATES:
        found.append(first(updates.mistakes(run)))
    if _history_can_be_judged(run.problem):
        found.append(first(history.mistakes(run)))
    return [_about(finding, when) for finding in found if finding is not None]


def _when(problem: Problem) -> str:
    """Say which run a finding is about, where the learner needs it to reproduce the finding."""
    if problem.poisoned:
        return f"seen when {_COUNTED[len(problem.poisoned)]} batches overflow in fp16"
    return "seen when dtype is torch.bfloat16" if problem.dtype == torch.bfloat16 else ""


def _about(finding: Finding, when: str) -> Finding:
    return replace(finding, message=f"{finding.message} ({when})") if when else finding


def _history_can_be_judged(problem: Problem) -> bool:
    """Whether it holds plain numbers: a poisoned mean is NaN by right, a tiny one rounds to zero."""
    return not problem.poisoned and problem.loss_weight >= 2.0**-15


def _what_holds(fields: tuple[str, ...], runs: list[Run]) -> Iterator[Finding]:
    asked, device = set().union(*(run.tape.hard_coded for run in runs)), runs[0].tape.device_type
    autocast = common_findings.in_place_of_cuda(asked, "autocast", device)
    scaler = common_findings.in_place_of_cuda(asked, "GradScaler", device)
    yield passed(
        "precision",
        f"the forward ran under autocast{autocast} in the dtype asked for, the loss was not in half "
        "precision, backward ran outside autocast",
    )
    yield passed(
        "scaling",
        f"in fp16 backward started from the scaled loss{scaler}, and very small gradients survived",
    )
    yield passed("updates", f"every update equals plain SGD on the {_gradient_to_apply(fields)}")
    lowered = "" if _left_out(runs) else ", the scale was lowered,"
    yield passed("overflow", f"batches that overflowed were skipped{lowered} and training went on")
    yield passed("history", "the history holds the mean loss of each epoch")


def _gradient_to_apply(fields: tuple[str, ...]) -> str:
    if "max_norm" in fields:
        return "true gradient, clipped to max_norm"
    if "accumulation_steps" in fields:
        return (
            "mean gradient of its window of batches; in a short last window, the sum divided by "
            "accumulation_steps counts as well"
        )
    return "true gradient"


def _remarks(runs: list[Run]) -> Iterator[Finding]:
    """Remark on style; nothing of it is wrong."""
    yield from _old_spellings(runs)
    if any(run.tape.hard_coded for run in runs):
        yield common_findings.cuda_replaced(
            "device_type",
            "PyTorch would only warn and switch autocast and the scaler off",
            "pass device_type on to autocast, GradScaler and .to()",
        )
    yield from _inputs_cast(runs)
    yield from _other_ways_to_scale(runs)
    yield from _batches_left_out(runs)
    yield from history.remarks(next(run for run in runs if not run.problem.poisoned))


def _old_spellings(runs: list[Run]) -> Iterator[Finding]:
    for spelling in sorted({spelling for run in runs for spelling in run.tape.deprecated}):
        yield catalogue.scaler.deprecated_api(spelling)


def _inputs_cast(runs: list[Run]) -> Iterator[Finding]:
    """Remark on batches that reached the model in 16 bits."""
    seen = {step.forward.input_dtype for run in runs for step in run.steps if step.forward}
    if seen & set(HALVES.values()):
        yield catalogue.precision.inputs_cast("the inputs were")


def _other_ways_to_scale(runs: list[Run]) -> Iterator[Finding]:
    in_bfloat16 = [run for run in runs if run.problem.dtype == torch.bfloat16]
    if any(call.enabled for run in in_bfloat16 for call in run.calls("scale")):
        yield catalogue.scaler.scaler_with_bfloat16()
    if not any(run.calls("scale") for run in runs):
        yield note(
            "own_scaling",
            "the loss was scaled by code of your own: right, and torch.amp.GradScaler does the same",
        )


def _left_out(runs: list[Run]) -> list[Window]:
    """List the windows in which a batch never reached a backward pass, since its loss was not finite."""
    scaled = [run for run in runs if any(call.enabled for call in run.calls("scale"))]
    return [each for run in scaled for each in windows(run) if each.skipped_backward_on_nonfinite_loss]


def _batches_left_out(runs: list[Run]) -> Iterator[Finding]:
    """Remark on losses that the loop itself looked at before backward."""
    left_out = _left_out(runs)
    if not left_out:
        return
    in_windows = left_out[0].planned_batches > 1
    yield catalogue.scaler.batch_left_out(", its window has a batch less" if in_windows else "")


def _comparisons(
    loss_run: Run, scale_run: Run, answer: Callable[..., Any], fields: tuple[str, ...]
) -> Iterator[SideBySide]:
    """Put losses and scales beside those of the solution on the same problems."""
    reference = run_loop(answer, loss_run.problem, fields)
    yield _side_by_side("loss of each batch, in the order of training", reference, loss_run, _losses)
    if scale_run.problem.dtype == torch.float16:
        if scale_run is not loss_run:
            reference = run_loop(answer, scale_run.problem, fields)
        yield _side_by_side("loss scale at each batch", reference, scale_run, _scales)


def _side_by_side(quantity: str, reference: Run, run: Run, read: Callable[[Run], list[float]]) -> SideBySide:
    return SideBySide(quantity, "batch", tuple(read(reference)), tuple(read(run)))


def _losses(run: Run) -> list[float]:
    return [step.loss.value for step in run.steps]


def _scales(run: Run) -> list[float]:
    return [_scale(step, run.problem.accumulation_steps) for step in run.steps]


def _scale(step: Step, accumulation_steps: int) -> float:
    """Return by how much the batch's gradients were scaled.

    The gradient that backward started with tells, whoever scaled. Where gradients are accumulated it also
    holds the batch's weight in its window, which the learner chooses, and a loss in fp16 makes inf of it;
    there the scaler is asked, if one was used.
    """
    if step.start_gradient is None:
        return math.nan
    scales = [call.scale for call in step.called("scale") if call.enabled]
    unclear = accumulation_steps > 1 or not math.isfinite(step.start_gradient)
    return scales[0] if unclear and scales else step.start_gradient * accumulation_steps
