"""What values and scale have to stand for, and by which mistake they do not."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.attempt import Rejected, reject, require_none
from amp_lessons.exercises.scaled_cast.cases import Case
from amp_lessons.exercises.small_formats import mistakes
from amp_lessons.formats import FloatFormat

_HALF_A_STEP = 0.51  # a hundredth of a step for a division or multiplication that is rounded to fp32
_BY_16_BITS = 0.6  # half a unit of bf16 is up to a sixteenth of a step of E4M3, and less of E5M2


def require_close(values: Tensor, scale: float, case: Case, element: FloatFormat, what: str) -> None:
    """Reject what is further from x than half a step, by the mistake that leads there."""
    require_none(_mistakes(values, scale, case, element, what))


def _mistakes(values: Tensor, scale: float, case: Case, element: FloatFormat, what: str) -> Iterator[Finding]:
    x = case.x.double()
    if not scale > 0:
        yield _not_a_scale(scale, what)
    misplaced = mistakes.misplaced(case.amax, scale, element, what)
    right = misplaced is None and _steps_off(values, x / scale, element) <= _HALF_A_STEP
    if not right:
        if values.any():  # where all underflowed, nothing tells one way from another
            yield from _confusions(values, scale, x, element, what)
        yield from _wrong_amax(scale, case, element, what)
        if misplaced is not None:
            yield misplaced
        yield _imprecise(values, x / scale, element, what)


def _not_a_scale(scale: float, what: str) -> Finding:
    return failed(
        "no_scale",
        f"{what}: {scale} is no scale; values · scale cannot be x",
        "compute it in fp32, from the largest magnitude; 1 / amax leaves fp32 where amax is very small",
    )


def _steps_off(values: Tensor, wanted: Tensor, element: FloatFormat) -> float:
    """Return how many steps of the format a value is away from what it should be, at most."""
    exponents = torch.frexp(wanted)[1].double() - 1 - element.mantissa_bits
    # A number a hair below a power of two, rounded up to it, is measured by the finer steps: half of them
    steps = torch.ldexp(torch.ones_like(wanted), exponents).clamp(min=element.smallest_subnormal)
    distance = (values - wanted).abs()
    return math.inf if distance.isnan().any() else float((distance / steps).max())


def _confusions(
    values: Tensor, scale: float, x: Tensor, element: FloatFormat, what: str
) -> Iterator[Finding]:
    """Find out whether the values stand for x by a scale that is another's."""
    limit = element.max
    if scale != 1 and _steps_off(values, (x * scale).clamp(-limit, limit), element) <= _HALF_A_STEP:
        yield mistakes.scale_inverted(what, "the values are those of x · scale, where x / scale is asked for")
    if _steps_off(values, x.clamp(-limit, limit), element) <= _HALF_A_STEP:
        underflowed, saturated = (values == 0) & (x != 0), x.abs() > limit
        yield mistakes.not_scaled(what, *(float(each.double().mean()) for each in (underflowed, saturated)))


def _wrong_amax(scale: float, case: Case, element: FloatFormat, what: str) -> Iterator[Finding]:
    """Find out whether the scale comes from something else than the largest magnitude."""
    largest, smallest = float(case.x.max()), float(case.x.min())
    if 0 < largest < -smallest and math.isclose(scale * element.max, largest, rel_tol=0.01):
        yield catalogue.steps.signs_ignored(
            f"the scale comes from the largest number, {largest:.3g}, {what}, and the smallest is "
            f"{smallest:.3g}",
            "magnitudes decide: x.abs().max()",
        )
    if case.amax < 1e-20 and case.amax / scale < element.max / 2:
        yield failed(
            "floor_too_high",
            f"{what}: the scale is {scale:.3g}, as if it were not allowed to be smaller: the largest "
            f"magnitude becomes {case.amax / scale:.3g} and much of the tensor 0",
            "a floor for the largest magnitude is there for zeros: 1e-30 is low enough, 1e-12 is not",
        )


def _imprecise(values: Tensor, wanted: Tensor, element: FloatFormat, what: str) -> Finding:
    off = _steps_off(values, wanted, element)
    if off <= _BY_16_BITS:
        return mistakes.computed_in_16_bits(what, f"a value is {off:.2f} steps off, so it was rounded twice")
    return failed(
        "wrong_cast",
        f"{what}: a value is {off:.3g} steps of {element.name} away from x / scale",
        "(x / scale).to(dtype) rounds to the nearest, which is half a step away at most",
    )


def require_zero(values: Tensor, scale: float, case: Case, element: FloatFormat, what: str) -> None:
    """Reject anything but small finite values by a finite scale, where fp32 has no scale for the numbers."""
    if scale > 0 and values.isfinite().all():
        largest = case.amax if case.x.numel() else 0.0
        if not values.numel() or float(values.abs().max()) * scale <= 2 * largest:
            return
    if case.kind == "zero":
        seen = "not all values are zero" if values.isfinite().all() else "values became inf or NaN"
        raise Rejected(
            mistakes.zero_amax(what, seen if scale > 0 else f"the scale is {scale}, which is no scale")
        )
    reject(
        "scale_beyond_fp32",
        f"{what}: the scale is {scale:.3g}, and values are {values.abs().max():.3g} at most: numbers so "
        "small have no exact scale in fp32, and its inverse would be inf",
        "clamp the largest magnitude from below, by 1e-30 say: what is smaller may become zero, but not NaN",
    )


def require_not_finite(values: Tensor, scale: float, case: Case, element: FloatFormat, what: str) -> None:
    """Reject a finite result where x is inf or NaN; other elements may become NaN too."""
    hidden = (values * scale).isfinite() & ~case.x.isfinite()
    if hidden.any():
        shown = float((values * scale)[hidden][0])
        raise Rejected(mistakes.inf_hidden(what, f"it stands for {shown:.4g} afterwards"))
