"""From the gradient of each loss to the change of the weights: scaling, unscaling, stepping, skipping.

With plain SGD the change of the weights tells which gradient was applied, and the true gradient is known, so
most of these mistakes show as a factor between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.mistakes import clipping, coverage, exceptions, scaling, steps
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.training_loops.window import Window, close, windows


def first_mistake(run: Run) -> Finding | None:
    """Return the root cause among the mistakes of scaling and stepping, None when there is none."""
    return next((finding for finding in _mistakes(run) if finding is not None), None)


def _mistakes(run: Run) -> Iterator[Finding | None]:
    """Go through the run in the order of time: what goes wrong first is the cause of what follows."""
    yield coverage.inputs_changed(run)
    yield _closure(run)
    yield coverage.batches(run)
    yield coverage.another_optimizer(run)
    yield coverage.weights_reset(run)
    everything = windows(run)
    yield scaling.not_scaled(everything[0])
    for window in everything:
        yield _backward_count(window)
        yield _leftovers(window)
        yield _other_loss(window)
        spoilt = window.overflowed or window.given_up or window.hidden
        yield scaling.overflow(window) if spoilt else _update(window)
    yield scaling.scale_after_overflow(everything)
    if not run.problem.poisoned:
        yield scaling.never_stepped(everything)
        yield coverage.optimizer_untouched(run)


def _closure(run: Run) -> Finding | None:
    """Find a closure that PyTorch does not refuse: one passed by position."""
    return exceptions.closure() if any(call.arguments for call in run.calls("scaler.step")) else None


def _backward_count(window: Window) -> Finding | None:
    for step in window.steps:
        if len(step.backwards) > 1:
            return exceptions.backward_twice()
        if not step.backwards and not window.given_up:
            later = [s for s in window.run.steps if len(s.backwards) > 1]
            if later:
                return exceptions.losses_summed()
            return failed(
                "no_backward",
                "a loss was computed but backward was never called on it",
                "call scaler.scale(loss).backward() for every batch",
            )
    return None


def _leftovers(window: Window) -> Finding | None:
    """Find gradients of earlier windows: beside scaled ones they are too small to see in the weights."""
    first = next((step.backwards[0] for step in window.steps if step.backwards), None)
    if first is None or not (first.leftover & set(first.gradients)):
        return None
    return failed(
        "no_zero_grad",
        "backward added to gradients that were still there from an earlier step: they were not set to zero "
        "in between",
        "call optimizer.zero_grad() once per update, before the forward pass or after the step",
    )


def _other_loss(window: Window) -> Finding | None:
    """Compare the losses with those of the model's plain outputs and the loader's targets."""
    if window.poisoned or window.moved_within:
        return None
    for step, right in zip(window.steps, window.true_losses, strict=True):
        if math.isfinite(step.loss.value) and not math.isclose(step.loss.value, right, rel_tol=0.05):
            return failed(
                "other_loss",
                f"the loss of a batch is {step.loss.value:.4g}, where loss_fn(model(inputs), targets) is "
                f"{right:.4g}: loss_fn was given other outputs or targets (a softmax before a cross "
                "entropy, for one)",
                "call loss_fn on the model's outputs and the batch's own targets, as they are",
            )
    return None


def _update(window: Window) -> Finding | None:
    """Compare the update with the wanted one, and name the mistake behind a difference."""
    if window.poisoned:
        return None  # at a scale so low that nothing overflows, a huge but finite update is the right one
    if window.moved_within:
        return steps.moved_within(window)
    true = window.true_gradients
    acceptable = [window.mean_gradient, torch.stack(true).mean(0)]
    if any(close(window, window.wanted(gradient)) for gradient in acceptable):
        return None
    for explain in _EXPLANATIONS:
        finding = explain(window)
        if finding is not None:
            return finding
    return steps.unexplained(window)


# in the order in which one may be the cause of another
_EXPLANATIONS: list[Callable[[Window], Finding | None]] = [
    steps.stepped_twice,
    steps.direct_step,
    clipping.clipping,
    steps.accumulation,
    steps.no_step,
    scaling.mostly_vanished,
    steps.wrong_factor,
    steps.partial,
    steps.other_gradient,
    steps.gradients_changed,
    steps.weights_changed,
]
