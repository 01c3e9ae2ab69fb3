"""What is wrong with a loss scaler, iteration by iteration beside PyTorch's."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.loss_scaler.story import OVERFLOWS, Moment
from amp_lessons.text.describing import describe

SCALE_HINT = "return loss * scale: a tensor that still has the graph of the loss"


def mistake(moments: list[Moment], count: int, theirs: Moment) -> Finding | None:
    """Name what the learner's scaler did wrong in iteration ``count``, where PyTorch's did ``theirs``."""
    mine, past = moments[count], moments[:count]
    finding = _scaling(mine, theirs, past) or _stepping(mine, theirs, past)
    if finding is not None and finding.code in ("step_does_not_unscale", "wrong_step"):
        # step relies on unscale_: if that is wrong, say so instead
        finding = next((f for f in map(_unscaling, moments) if f is not None), finding)
    return finding or _updating(mine, theirs, past)


def _scaling(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    try:
        scale = float(mine.scale_before)
    except (TypeError, ValueError):
        return failed(
            "get_scale",
            f"get_scale() returned {describe(mine.scale_before)}, not a float",
            "return the scale",
        )
    if not past and scale != theirs.scale_before:
        return failed(
            "init_scale",
            f"the first scale is {scale:g}, not init_scale={theirs.scale_before:g}",
            "start from init_scale",
        )
    if not _near(mine.scaled_loss, theirs.scaled_loss):
        return failed(
            "scale",
            f"scale(loss) returned {mine.scaled_loss:g} where the loss times the scale is "
            f"{theirs.scaled_loss:g}",
            SCALE_HINT,
        )
    return _changing_the_loss(mine, scale) or _unscaling(mine)


def _changing_the_loss(mine: Moment, scale: float) -> Finding | None:
    """Find a loss that was changed in place: what is scaled is right, and what the caller logs is not."""
    if mine.loss_after == mine.loss:
        return None
    what = f"scale(loss) changed the caller's own loss, from {mine.loss:g} to {mine.loss_after:g}"
    if _near(mine.loss_after, mine.loss * scale):
        why = f"a loss logged after it is multiplied by the scale, by {2**16:,} with the default init_scale"
    else:
        why = "a loss logged after it is wrong"
    return failed(
        "changes_loss",
        f"{what}: {why}",
        "return a new tensor and leave the loss as it is: loss * scale, not loss *= scale",
    )


def _unscaling(mine: Moment) -> Finding | None:
    if mine.unscaled is None or _same(mine.unscaled, mine.true_gradient):
        return None
    return failed(
        "unscale",
        f"after unscale_ the gradients are {_listed(mine.unscaled)} instead of {_listed(mine.true_gradient)}",
        "divide each parameter.grad of the optimizer's param_groups in place by the scale, once",
    )


def _stepping(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    if mine.overflowed:
        return _stepping_on_overflow(mine)
    if _same(mine.moved, theirs.moved):
        return None if mine.steps else _by_hand()
    if not mine.moved.any():
        if past and past[-1].overflowed:
            return failed(
                "never_recovers",
                "the step after an overflow was skipped too: the overflow of the last iteration is still "
                "remembered",
                "forget the overflow in update()",
            )
        return failed(
            "never_steps",
            "the weights did not change although all gradients are finite",
            "call optimizer.step()",
        )
    if _same(mine.moved, theirs.moved * theirs.scale_before):
        return _not_unscaled(mine, past)
    if _same(mine.moved, theirs.moved / theirs.scale_before):
        return failed(
            "unscales_twice",
            "the gradients were divided by the scale twice"
            + (": step unscaled again after unscale_" if mine.event == "u" else ""),
            "remember that unscale_ was called, and do not unscale again in step",
        )
    if _same(mine.moved, 2 * theirs.moved):
        return failed("double_step", "the optimizer stepped twice", "call optimizer.step() once")
    return failed(
        "wrong_step",
        f"the weights moved by {_listed(mine.moved)} instead of {_listed(theirs.moved)}",
        "unscale the gradients, then call optimizer.step()",
    )


def _stepping_on_overflow(mine: Moment) -> Finding | None:
    if not mine.steps and not mine.moved.any():
        return None
    what = f"the optimizer stepped although a gradient was {OVERFLOWS[mine.event].words}"
    if mine.event == "clip":
        return failed(
            "overflow_clipped_away",
            f"{what}: a step was made with what clipping had left of inf",
            "look for inf and NaN in unscale_, and remember it until update: step may see clipped gradients",
        )
    if not mine.moved.isfinite().all():
        then = "the weights are inf or NaN from now on"
    elif mine.moved.any():
        then = f"the weights moved by {_listed(mine.moved)}"
    else:
        then = "the weights stayed, as this is plain SGD; momentum or weight decay may move them"
    return failed(
        "steps_on_overflow",
        f"{what}: {then}",
        "look for inf, -inf and NaN in every gradient of every group (isfinite() finds all three). If there "
        "is one, do not call optimizer.step()",
    )


def _by_hand() -> Finding:
    return failed(
        "steps_by_hand",
        "the weights moved although optimizer.step() was not called: that fits this plain SGD only",
        "leave the update to the optimizer: call optimizer.step()",
    )


def _not_unscaled(mine: Moment, past: list[Moment]) -> Finding:
    if any(moment.event == "u" for moment in past):
        return failed(
            "stays_unscaled",
            "step applied scaled gradients: it still believed that unscale_ had been called, in an earlier "
            "iteration",
            "forget in update() that the gradients were unscaled",
        )
    return failed(
        "step_does_not_unscale",
        "step applied gradients that are still multiplied by the scale",
        "call unscale_ in step, unless it has been called since the last update",
    )


def _updating(mine: Moment, theirs: Moment, past: list[Moment]) -> Finding | None:
    try:
        seen = float(mine.scale_after)
    except (TypeError, ValueError):
        return failed("get_scale", f"get_scale() returned {describe(mine.scale_after)}", "return the scale")
    if _near(seen, theirs.scale_after):
        return None
    moved = f"the scale went from {mine.scale_before:g} to {seen:g}"
    if mine.overflowed:
        return failed(
            "backoff",
            f"{moved} after an overflow; backoff_factor makes it {theirs.scale_after:g}",
            "after an overflow multiply the scale by backoff_factor, with no lower bound",
        )
    if past and past[-1].scale_after > past[-1].scale_before and seen < theirs.scale_after:
        return failed(
            "capped",
            f"{moved}; growth_factor makes it {theirs.scale_after:g}, and smaller scales did grow by it",
            "set no upper bound: where a scale is too large, an overflow lowers it again",
        )
    if seen == mine.scale_before:
        return failed(
            "growth_late",
            f"{moved} although growth_interval iterations in a row were clean; it should be "
            f"{theirs.scale_after:g}",
            "count clean iterations; when there are growth_interval of them, grow and count from zero again",
        )
    if theirs.scale_after != theirs.scale_before:
        return failed(
            "growth_factor",
            f"{moved}; growth_factor makes it {theirs.scale_after:g}",
            "multiply by growth_factor",
        )
    if any(moment.overflowed for moment in past):
        return failed(
            "counter_not_reset",
            f"{moved} too early: clean iterations from before the overflow were counted",
            "an overflow starts the count of clean iterations again from zero",
        )
    return failed(
        "growth_early",
        f"{moved} before growth_interval iterations in a row were clean",
        "count each iteration once; grow only when the count of clean ones reaches growth_interval, then "
        "count from zero again",
    )


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-7)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-5)


def _listed(values: Tensor) -> str:
    return "[" + ", ".join(f"{v:.4g}" for v in values.tolist()) + "]"
