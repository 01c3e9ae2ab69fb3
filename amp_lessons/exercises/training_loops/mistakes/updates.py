"""From the gradient of each loss to the change of the weights: scaling, unscaling, stepping, skipping.

With plain SGD the change of the weights tells which gradient was applied, and the true gradient is known, so
most of these mistakes show as a factor between the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.mistakes import clipping, coverage, scaling, steps
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.training_loops.window import Window, close, windows


def mistakes(run: Run) -> Iterator[Finding]:
    """Go through the run in the order of time: what goes wrong first is the cause of what follows."""
    yield from coverage.inputs_changed(run)
    yield from _closure(run)
    yield from coverage.batches(run)
    yield from coverage.another_optimizer(run)
    yield from coverage.weights_reset(run)
    everything = windows(run)
    yield from scaling.not_scaled(everything[0])
    for before, window in zip([None, *everything], everything, strict=False):
        yield from _in_window(window, before)
    yield from scaling.scale_after_overflow(everything)
    if not run.problem.poisoned:
        yield from scaling.never_stepped(everything)
        yield from coverage.optimizer_untouched(run)


def _in_window(window: Window, before: Window | None) -> Iterator[Finding]:
    yield from _backward_count(window)
    yield from _leftovers(window, before)
    yield from _other_loss(window)
    if window.overflowed or window.skipped_backward_on_nonfinite_loss or window.overflow_was_hidden:
        yield from steps.cleared_after_nonfinite_loss(window)
        yield from scaling.overflow(window)
    elif not window.poisoned:  # at a scale so low that nothing overflows, a huge but finite update is right
        yield from _update(window)


def _closure(run: Run) -> Iterator[Finding]:
    """Find a closure that PyTorch does not refuse: one passed by position."""
    if any(call.arguments for call in run.calls("scaler.step")):
        yield catalogue.scaler.closure()


def _backward_count(window: Window) -> Iterator[Finding]:
    for step in window.steps:
        if len(step.backwards_into_grad) > 1:
            yield catalogue.steps.backward_twice()
        if not step.backwards and not window.skipped_backward_on_nonfinite_loss:
            yield _no_backward(window)


def _no_backward(window: Window) -> Finding:
    if any(len(step.backwards) > 1 for step in window.run.steps):
        return failed(
            "losses_summed",
            "the losses of several batches went through one backward pass together: the graphs of all of "
            "them were kept in memory at once",
            "call scaler.scale(loss).backward() for every batch, right after its forward pass",
        )
    return failed(
        "no_backward",
        "a loss was computed but backward was never called on it",
        "call scaler.scale(loss).backward() for every batch",
    )


def _leftovers(window: Window, before: Window | None) -> Iterator[Finding]:
    """Find gradients of earlier windows: beside scaled ones they are too small to see in the weights."""
    passes = (passes for step in window.steps for passes in step.backwards_into_grad)
    backward = next(passes, None)
    if backward is not None and backward.leftover & set(backward.gradients):
        if before is not None:
            yield from steps.carried_over(before)
        yield catalogue.steps.no_zero_grad()


def _other_loss(window: Window) -> Iterator[Finding]:
    """Compare the losses with those of the model's plain outputs and the loader's targets."""
    if window.poisoned or window.moved_within:
        return
    for step, right in zip(window.steps, window.true_losses, strict=True):
        if math.isfinite(step.loss.value) and not math.isclose(step.loss.value, right, rel_tol=0.05):
            yield failed(
                "other_loss",
                f"the loss of a batch is {step.loss.value:.4g}, where loss_fn(model(inputs), targets) is "
                f"{right:.4g}: loss_fn was given other outputs or targets (a softmax before a cross "
                "entropy, for one)",
                "call loss_fn on the model's outputs and the batch's own targets, as they are",
            )


def _update(window: Window) -> Iterator[Finding]:
    """Compare the update with the wanted one, and name the mistake behind a difference."""
    if window.moved_within:
        yield steps.moved_within(window)
    yield from steps.stepped_again_on_nothing(window)
    acceptable = [window.mean_gradient, torch.stack(window.true_gradients).mean(0)]
    if any(close(window, window.wanted(gradient)) for gradient in acceptable):
        return
    for explanations in _EXPLANATIONS:
        yield from explanations(window)


# in the order in which one may be the cause of another; the last always has something to say
_EXPLANATIONS = (
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
    steps.unexplained,
)
