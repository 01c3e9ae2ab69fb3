"""What is wrong with one step of a GAN, root cause first."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

from amp_lessons.audit import catalogue
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


def mistakes(call: GanCall) -> Iterator[Finding]:
    """Look for what went wrong in one call, one that may be the cause of others first."""
    if call.outcome.error is not None:
        yield explained(call)
    yield from precision(call)
    yield from another_scaler(call)
    if call.poisoned:
        yield from overflow(call)
        return
    judged_by = [truth(call, call.after.discriminator), truth(call, call.before.discriminator)]
    yield from discriminator(call, judged_by)
    yield from generator(call, judged_by)
    yield from unscaled(call)
    if call.frozen:
        yield catalogue.precision.parameters_frozen(
            "after the step", f"the {call.frozen[0]}'s parameters", "unfreeze them before the step returns"
        )
    yield from _wrong_type(call.outcome.value)
    yield from _wrong_losses(call, judged_by)


_ADVICE = "return d_loss.item(), g_loss.item()"


def _wrong_type(returned: Any) -> Iterator[Finding]:
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        yield common_findings.wrong_return_type("two floats were", describe(returned), _ADVICE)
    if not all(_is_float(value) for value in returned):
        yield failed("losses_not_floats", f"the step returned {describe(returned)}, not two floats", _ADVICE)


def _is_float(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _wrong_losses(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    d_seen, g_seen = map(float, call.outcome.value)
    d_loss, g_losses = judged_by[0].d_loss, [right.g_loss for right in judged_by]
    if _near(d_seen, [d_loss]) and _near(g_seen, g_losses):
        return
    if _near(g_seen, [d_loss]) and _near(d_seen, g_losses):
        yield failed("losses_exchanged", "the two losses were returned in the wrong order", _ADVICE)
    if call.scale > 1 and (d_seen > 0.5 * call.scale * d_loss or g_seen > 0.5 * call.scale * g_losses[0]):
        yield failed(
            "losses_scaled", "a scaled loss was returned; it jumps whenever the scale changes", _ADVICE
        )
    yield failed(
        "wrong_losses",
        f"the step returned ({d_seen:.4g}, {g_seen:.4g}) instead of ({d_loss:.4g}, {g_losses[0]:.4g})",
        _ADVICE,
    )


def _near(seen: float, accepted: list[float]) -> bool:
    return any(math.isclose(seen, value, rel_tol=0.02) for value in accepted)
