"""What is wrong with one step of a GAN, root cause first."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.two_optimizers.mistakes_in_precision import another_scaler, precision
from amp_lessons.exercises.two_optimizers.mistakes_in_updates import (
    discriminator,
    generator,
    overflow,
    unscaled,
)
from amp_lessons.exercises.two_optimizers.mistakes_that_raise import explained
from amp_lessons.exercises.two_optimizers.testbed import GanCall, Truth, truth
from amp_lessons.text.describing import describe


def first_mistake(call: GanCall) -> Finding | None:
    """Return the root cause of what went wrong in one call, None when nothing did."""
    return next((finding for finding in _mistakes(call) if finding is not None), None)


def _mistakes(call: GanCall) -> Iterator[Finding | None]:
    yield common_findings.misconduct(call.outcome)
    if call.outcome.error is not None:
        yield explained(call)
    yield precision(call)
    yield another_scaler(call)
    if call.poisoned:
        yield overflow(call)
        return
    judged_by = [truth(call, call.after.discriminator), truth(call, call.before.discriminator)]
    yield discriminator(call, judged_by)
    yield generator(call, judged_by)
    yield unscaled(call)
    yield _returned(call, judged_by)


def _returned(call: GanCall, judged_by: list[Truth]) -> Finding | None:
    value = call.outcome.value
    advice = "return d_loss.item(), g_loss.item()"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return failed(
            "wrong_return_type",
            f"two floats were expected, the step returned {describe(value)}",
            advice,
        )
    if not all(_is_float(v) for v in value):
        return failed("losses_not_floats", f"the step returned {describe(value)}, not two floats", advice)
    d_seen, g_seen = map(float, value)
    d_loss, g_losses = judged_by[0].d_loss, [right.g_loss for right in judged_by]
    if _near(d_seen, [d_loss, 0.5 * d_loss]) and _near(g_seen, g_losses):
        return None
    if _near(g_seen, [d_loss, 0.5 * d_loss]) and _near(d_seen, g_losses):
        return failed("losses_exchanged", "the two losses were returned in the wrong order", advice)
    if call.scale > 1 and (d_seen > 0.5 * call.scale * d_loss or g_seen > 0.5 * call.scale * g_losses[0]):
        return failed(
            "losses_scaled", "a scaled loss was returned; it jumps whenever the scale changes", advice
        )
    return failed(
        "wrong_losses",
        f"the step returned ({d_seen:.4g}, {g_seen:.4g}) instead of ({d_loss:.4g}, {g_losses[0]:.4g})",
        advice,
    )


def _is_float(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _near(seen: float, accepted: list[float]) -> bool:
    return any(math.isclose(seen, value, rel_tol=0.02) for value in accepted)
