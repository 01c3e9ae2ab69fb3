"""Was the loss scaled far enough, and did the scaler learn from an overflow?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.training_loops.window import Window


def not_scaled(window: Window) -> Iterator[Finding]:
    """Find a loss that went backward in fp16 as it is."""
    start = window.last.start_gradient
    if window.run.problem.dtype != torch.float16 or start is None or start > 1.0:
        return
    if start == 0.0:
        yield failed(
            "loss_cut_off",
            "backward reached the loss with a gradient of zero: the loss was clamped or replaced before "
            "backward",
            "call backward on the scaled loss as loss_fn returned it",
        )
    if window.scale > 1.0:
        yield catalogue.steps.scaled_loss_discarded(f"{window.scale:g}")
    yield catalogue.steps.loss_not_scaled(why_unscaled(window.run), vanished(window), hint=SCALING_HINT)


SCALING_HINT = (  # the first step alone: the whole order of calls would be the exercise
    "multiply the loss before backward: a torch.amp.GradScaler does, made once and enabled in fp16"
)


def why_unscaled(run: Run) -> str:
    """Say what became of the scaler of a loop that did not scale its loss."""
    scaled = run.calls("scale")
    made = run.calls("GradScaler") + scaled
    if any(not call.enabled for call in made):
        return "the GradScaler is switched off in fp16: enabled=False, or made for a device that is not there"
    if any(call.enabled for call in scaled):
        return "the loss scale is 1"
    return (
        "a GradScaler was made, but scaler.scale(loss) was never called" if made else "no GradScaler was used"
    )


def vanished(window: Window) -> str:
    """Say which share of a window's gradients became zero, where they can be seen."""
    true, found = window.mean_gradient, window.accumulated
    if found is None:
        return "small gradients vanish in fp16"
    zero_fraction = float(((found == 0) & (true != 0)).sum() / (true != 0).sum())
    if zero_fraction < 0.01:
        return "gradients below 2⁻²⁵ vanish in fp16"
    return f"{zero_fraction:.0%} of the gradients of the first batch became zero"


def mostly_vanished(window: Window) -> Iterator[Finding]:
    """Find a scale at which a tenth of the gradient's norm was lost."""
    found = window.accumulated
    if window.run.problem.dtype != torch.float16 or found is None or not window.start_gradient < 2**6:
        return
    lost = (found / window.start_gradient - window.mean_gradient).norm()
    if bool(lost > 0.1 * window.mean_gradient.norm()):
        yield catalogue.steps.scale_too_small(window.start_gradient, vanished(window))


def overflow(window: Window) -> Iterator[Finding]:
    """Look at a window whose gradients overflowed: it must leave the weights alone."""
    if window.overflow_was_hidden:
        yield catalogue.scaler.overflow_hidden()
    if _left_alone(window):
        return
    given = window.gradients_at_step
    if given is not None and given.isfinite().all() and not _noticed(window):
        yield catalogue.scaler.overflow_hidden()
    if window.called("optimizer.step", directly=True):
        yield catalogue.scaler.step_bypasses_scaler("optimizer.step() was called directly")
    if not window.called("optimizer.step"):
        yield catalogue.steps.weights_changed("a batch overflowed and its step was skipped")
    yield catalogue.scaler.overflow_not_skipped("they are now inf or NaN, or moved by garbage")


def _noticed(window: Window) -> bool:
    """Whether the scaler looked at gradients while some of them were not finite."""
    looked_at = [call.gradients for call in window.called("unscale_") if call.gradients is not None]
    return any(not bool(gradients.isfinite().all()) for gradients in looked_at)


def _left_alone(window: Window) -> bool:
    """Whether no weight moved, or only by the batches that did not overflow: the other was left out."""
    finite = not window.overflowed and bool(window.after.isfinite().all())
    batch_left_out = window.skipped_backward_on_nonfinite_loss and finite
    return batch_left_out or not any(step.moved for step in window.steps)


def kept_from_another_call(run: Run) -> Iterator[Finding]:
    """Find a scaler that had counted steps before this run began."""
    first = next(iter(run.calls("scale")), None)
    if first is not None and first.clean_steps > 0:
        yield failed(
            "scaler_kept",
            f"the scaler had counted {first.clean_steps} steps before the first batch: it, or its state, is "
            "left from an earlier call, of another model and perhaps in another dtype, whose scale says "
            "nothing about this one, and which decided whether it is enabled",
            "make the scaler inside the function: a default argument, a global variable and an attribute of "
            "the function live as long as the process",
        )


def scale_after_overflow(everything: list[Window]) -> Iterator[Finding]:
    """Find a scale that does not fall after an overflow, or rises again otherwise than by its scaler."""
    for window, later in itertools.pairwise(everything):
        if window.overflowed and later.last.backwards and not _scale(later) < _scale(window):
            yield why_no_backoff(window, later)
        yield from raised_otherwise(window, later)
        if _scale(later) < _scale(everything[0]):  # otherwise it may be a scaler that was told nothing
            yield from _count_forgotten(window, later)


def raised_otherwise(window: Window, later: Window) -> Iterator[Finding]:
    """Find a scale that rose from one window to the next, and not by its scaler."""
    if _scale(later) > _scale(window) and _scalers(window) and _scalers(later) - _scalers(window):
        yield catalogue.scaler.scaler_recreated()
    if _set_back(window, later):
        yield _reset(window, later)


def _scale(window: Window) -> float:
    """Return the scale that the scaler, or the loop itself, used."""
    return window.scale if window.scale > 1 else window.start_gradient


def _scalers(window: Window) -> set[int]:
    return {call.owner for call in window.called("scale")}


def _set_back(window: Window, later: Window) -> bool:
    """Whether something other than update() raised the scale from one window to the next."""
    left_at = [call.scale for call in window.called("updated")]
    return bool(left_at) and bool(later.called("scale")) and later.scale > left_at[-1]


def why_no_backoff(window: Window, later: Window) -> Finding:
    """Explain a scale that is no lower in a ``later`` window although ``window`` overflowed."""
    if _scalers(later) - _scalers(window):
        return catalogue.scaler.scaler_recreated()
    given = [c.gradients for c in window.called("unscale_", "optimizer.step") if c.gradients is not None]
    if given and given[-1].isfinite().all():
        return catalogue.scaler.overflow_hidden()
    return catalogue.scaler.scale_never_lowered(_scale(window), _scale(later))


def _count_forgotten(window: Window, later: Window) -> Iterator[Finding]:
    """Find a new scaler that was told the scale of the old one, and not for how many steps it has held."""
    left_at = [call.clean_steps for call in window.called("updated")]
    begun_at = [call.clean_steps for call in later.called("scale")]
    if left_at and begun_at and begun_at[0] < left_at[-1] and _scalers(later) - _scalers(window):
        yield catalogue.scaler.scaler_recreated(
            "it knows the scale of the old one, but counts clean steps from 0 again, so that with short "
            "epochs the scale never grows",
            "make one GradScaler before the first epoch, or hand its whole state on",
        )


def _reset(window: Window, later: Window) -> Finding:
    before = window.called("updated")[-1].scale
    return catalogue.scaler.scale_reset(f"from {before:g} back to {later.scale:g}")


def never_stepped(everything: list[Window]) -> Iterator[Finding]:
    """Find a scale so large that every batch of the run overflowed."""
    if all(window.overflowed for window in everything):
        yield failed(
            "scale_too_large",
            f"not one step was taken: the scale begins at {everything[0].start_gradient:g}, every batch "
            "overflowed, and halving it once per batch was not enough",
            "leave init_scale at its default, 65536",
        )
