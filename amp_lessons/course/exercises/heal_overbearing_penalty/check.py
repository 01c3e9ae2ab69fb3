"""A gradient penalty under mixed precision: it is meant for the true gradient, not for the scaled one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

import torch
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.course.exercises import bed, loops
from amp_lessons.course.exercises.heal_overbearing_penalty.solution import train_overbearing_penalty
from amp_lessons.course.exercises.loop_runs import STANDARD, TINY_WEIGHT, Run, Window

_PENALTY = 0.5
_TINY, _PLAIN, _BFLOAT16, _POISONED, _ = STANDARD


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems, and compare each update with that of loss and penalty."""
    bench = loops.Bench(
        train_overbearing_penalty,
        (_PLAIN, _TINY, _BFLOAT16, _POISONED),
        constants={"penalty": _PENALTY},
        mistakes=lambda run: [found for found in [first(_mistakes(run))] if found is not None],
        applied="gradient of the loss plus the penalty on its true gradient",
    )
    return (
        each for each in bench.judge(worker, draw) if isinstance(each, bed.SideBySide) or each.kind != "note"
    )


def _mistakes(run: Run) -> Iterator[Finding]:
    """Look for what is wrong, what may be the cause of the rest first."""
    if run.told["raised"]:
        yield from _unscaled_nothing(run)
    yield from chain(loops.conduct(run, ""), loops.precision(run), loops.coverage(run), loops.not_scaled(run))
    for window in run.windows:
        if window.overflowed or window.hidden or window.left_out:
            yield from _vanished(window)
            yield from loops.overflow(window)
        elif not window.poisoned:
            yield from _update(window)
    yield from loops.scale_after_overflow(run.windows)
    if not run.problem.poisoned and run.problem.loss_weight > TINY_WEIGHT:
        yield from loops.history(run)


def _unscaled_nothing(run: Run) -> Iterator[Finding]:
    """Find ``unscale_`` before backward had left anything in ``.grad``."""
    calls = run.seen[-1].called("unscale_", directly=True) if run.seen else []
    if any(not call.gradients.any() for call in calls):
        yield rules.steps.unscale_without_gradients(
            "torch.autograd.grad returns its gradients instead of putting them there",
            "divide what torch.autograd.grad returned by scaler.get_scale() yourself",
        )


def _vanished(window: Window) -> Iterator[Finding]:
    """Find a penalty's gradient that was taken of the unscaled loss: all zeros have no norm to derive."""
    begun = window.last.begun
    if window.problem.loss_weight < TINY_WEIGHT and len(begun) > 1 and begun[0] <= 1:
        yield rules.loss.loss_not_scaled(
            "torch.autograd.grad went through the loss as it is",
            "the gradients that are penalised vanish in fp16, and zeros have no norm to derive",
            hint="take these gradients of the scaled loss, and bring them to their true size afterwards",
        )


def _update(window: Window) -> Iterator[Finding]:
    parts, applied = torch.stack(_parts(window), dim=1), window.applied
    wanted = parts.sum(1)
    if bool((applied - wanted).norm() <= 0.05 * wanted.norm()):  # fp16 rounds second derivatives twice
        return
    yield from _vanished(window)
    yield from loops.no_step(window)
    shares = torch.linalg.lstsq(parts, applied[:, None]).solution
    counts = "it is neither that of the loss nor that of loss and penalty"
    loss, penalty = shares[:, 0].tolist()
    if bool((parts @ shares - applied[:, None]).norm() <= 0.05 * applied.norm()):
        if penalty > math.sqrt(window.scale) > 1:  # the scale, unless the penalty was made smaller against it
            yield rules.steps.penalty_on_scaled_gradients(f"{penalty:.5g} times")
        counts = f"it is {loss:.3g} times that of the loss plus {round(penalty, 3):.3g} times that of the "
        counts += f"penalty, at a scale of {window.scale:g}"
    hint = "torch.autograd.grad needs create_graph=True and the scaled loss; divide its result by what "
    hint += "scaler.get_scale() returns in the same iteration; then scale the sum of loss and penalty, of "
    hint += "one norm of all gradients together, not of its square, as a tensor: .item() leaves it without a "
    hint += "gradient"
    if abs(penalty) < 0.05 and bool((applied - parts[:, 0]).norm() <= 0.05 * applied.norm()):
        yield failed("penalty_missing", f"the update is that of the loss alone: {counts}", hint)
    yield from _changed(window)
    yield rules.steps.wrong_update("the update", counts, hint)


def _changed(window: Window) -> Iterator[Finding]:
    given, left = window.given, window.left
    if given is None or left is None or window.called("unscale_"):
        return
    if not torch.allclose(given * window.begun, left, rtol=1e-3):
        yield rules.steps.gradients_changed("the gradients")


def _parts(window: Window) -> tuple[Tensor, Tensor]:
    """Return the gradient of the loss, and that of the penalty times its norm, flat and in fp32."""
    (batch,) = window.batches
    loss, parameters = window.problem.loss_at(window.before, batch or 0)
    found = torch.autograd.grad(loss, parameters, create_graph=True)
    gradient = torch.cat([each.reshape(-1) for each in found])
    of_norm = torch.autograd.grad(_PENALTY * gradient.norm(), parameters)
    return gradient.detach(), torch.cat([each.reshape(-1) for each in of_norm])
