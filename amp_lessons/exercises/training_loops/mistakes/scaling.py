"""Was the loss scaled far enough, and did the scaler learn from an overflow?"""

from __future__ import annotations

import itertools

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.training_loops.window import Window


def not_scaled(window: Window) -> Finding | None:
    start = window.last.start_gradient
    if window.run.problem.dtype != torch.float16 or start is None or start > 1.0:
        return None
    if start == 0.0:
        return failed(
            "loss_cut_off",
            "backward reached the loss with a gradient of zero: the loss was clamped or replaced before "
            "backward",
            "call backward on the scaled loss as loss_fn returned it",
        )
    if window.scale > 1.0:
        return failed(
            "scaled_loss_discarded",
            "scaler.scale(loss) was called but backward ran on the unscaled loss, so scaler.step divides "
            f"gradients by {window.scale:g} that were never multiplied by it",
            "use what scale returns: scaler.scale(loss).backward()",
        )
    return failed("loss_not_scaled", f"{_why_unscaled(window.run)}: {_vanished(window)}", _SCALING_HINT)


_SCALING_HINT = (
    "make scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16) once, then "
    "scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()"
)


def _why_unscaled(run: Run) -> str:
    made = run.calls("GradScaler") + run.calls("scale")
    if any(not call.enabled for call in made):
        return (
            "the GradScaler is switched off in float16 (enabled=False, or made for a device that is not "
            "there), so the loss was not scaled"
        )
    if any(call.enabled for call in run.calls("scale")):
        return "the loss scale is 1, so the loss was not scaled"
    if made:
        return "a GradScaler was made, but scaler.scale(loss) was never called"
    return "float16 without loss scaling: backward started from the plain loss, no GradScaler was used"


def _vanished(window: Window) -> str:
    true, found = window.mean_gradient, window.accumulated
    if found is None:
        return "small gradients vanish in float16"
    zero_fraction = float(((found == 0) & (true != 0)).sum() / (true != 0).sum())
    if zero_fraction < 0.01:
        return "gradients below 2^-25 vanish in float16"
    return f"{zero_fraction:.0%} of the gradients of the first batch became zero"


def mostly_vanished(window: Window) -> Finding | None:
    found = window.accumulated
    if window.run.problem.dtype != torch.float16 or found is None or not window.start_gradient < 2**6:
        return None
    lost = (found / window.start_gradient - window.mean_gradient).norm() > 0.1 * window.mean_gradient.norm()
    return scale_too_small(window) if bool(lost) else None


def scale_too_small(window: Window) -> Finding:
    return failed(
        "scale_too_small",
        f"the loss scale {window.start_gradient:g} is too small: {_vanished(window)}",
        "leave init_scale at its default, 65536; the scaler lowers it by itself",
    )


def overflow(window: Window) -> Finding | None:
    """A window whose gradients overflowed must leave the weights alone."""
    if window.hidden:
        return _hidden_overflow()
    if not any(step.moved for step in window.steps):
        return None
    if window.given_up and not window.overflowed and bool(window.after.isfinite().all()):
        return None  # a batch was left out of the window because its loss was not finite
    given = window.gradients_at_step
    if given is not None and given.isfinite().all():
        return _hidden_overflow()
    if window.called("optimizer.step", directly=True):
        return failed(
            "step_bypasses_scaler",
            "a batch overflowed, and its inf or NaN gradients were applied: optimizer.step() was called "
            "directly, so nothing skipped the step",
            "call scaler.step(optimizer), also after scaler.unscale_(optimizer): it skips the step when a "
            "gradient is not finite",
        )
    if not window.called("optimizer.step"):
        return failed(
            "weights_changed",
            "a batch overflowed and its step was skipped, but the weights changed all the same: something "
            "other than the optimizer writes to them",
            "leave the weights to the optimizer",
        )
    return failed(
        "overflow_not_skipped",
        "a batch overflowed, and the weights changed all the same: they are now inf or NaN, or moved by "
        "garbage",
        "call scaler.step(optimizer), which leaves the weights alone when a gradient is not finite",
    )


def _hidden_overflow() -> Finding:
    return failed(
        "overflow_hidden",
        "inf and NaN were removed from the gradients (nan_to_num, clip_grad_value_, a mask) before the "
        "scaler could see them: it took the step and did not lower its scale",
        "leave non-finite gradients alone until scaler.unscale_ or scaler.step has checked them",
    )


def scale_after_overflow(everything: list[Window]) -> Finding | None:
    """After an overflow the scale must be lower, and stay so until the same scaler raises it."""
    for window, later in itertools.pairwise(everything):
        if window.overflowed and later.last.backwards and not _scale(later) < _scale(window):
            return _why_no_backoff(window, later)
        if _scale(later) > _scale(window) and _scalers(window) and _scalers(later) - _scalers(window):
            return _recreated()
        if _set_back(window, later):
            return _reset(window, later)
    return None


def _scale(window: Window) -> float:
    """The scale that the scaler, or the loop itself, used."""
    return window.scale if window.scale > 1 else window.start_gradient


def _set_back(window: Window, later: Window) -> bool:
    """Whether something other than update() raised the scale from one window to the next."""
    left_at = [call.scale for call in window.called("updated")]
    return bool(left_at) and bool(later.called("scale")) and later.scale > left_at[-1]


def never_stepped(everything: list[Window]) -> Finding | None:
    """Find a scale so large that every batch of the run overflowed."""
    if not all(window.overflowed for window in everything):
        return None
    return failed(
        "scale_too_large",
        f"not one step was taken: the scale begins at {everything[0].start_gradient:g}, every batch "
        "overflowed, and halving it once per batch was not enough",
        "leave init_scale at its default, 65536",
    )


def _scalers(window: Window) -> set[int]:
    return {call.owner for call in window.called("scale")}


def _recreated() -> Finding:
    return failed(
        "scaler_recreated",
        "a new GradScaler was made during training: its scale starts at the initial value again, and what "
        "was learned from overflows is forgotten",
        "make one GradScaler before the first epoch",
    )


def _reset(window: Window, later: Window) -> Finding:
    return failed(
        "scale_reset",
        f"between two batches the scale was set from {window.called('updated')[-1].scale:g} back to "
        f"{later.scale:g}, not by scaler.update(): what was learned from overflows is forgotten",
        "leave the scale to scaler.update(); load a scaler's state only when training is resumed",
    )


def _why_no_backoff(window: Window, later: Window) -> Finding:
    if _scalers(later) - _scalers(window):
        return _recreated()
    given = [c.gradients for c in window.called("unscale_", "optimizer.step") if c.gradients is not None]
    if given and given[-1].isfinite().all():
        return _hidden_overflow()
    return failed(
        "scale_never_lowered",
        f"a batch overflowed at scale {_scale(window):g}, and the next one was scaled by "
        f"{_scale(later):g}: if the scale does not fall after an overflow, every later step may be skipped",
        "call scaler.update() without arguments in every iteration",
    )
