"""A cast to eight bits with one scale per tensor: what it stands for is held against x, in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.common_findings import float_in
from amp_lessons.course.exercises.scaled_cast.cases import CastCase, cases
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.course.exercises.small_formats.watching_there import BEHAVIOURS, FORMAT_OF
from amp_lessons.formats import FloatFormat

# --- what values and scale have to stand for, and by which mistake they do not

_HALF_A_STEP = 0.51  # a hundredth of a step for a division or multiplication that is rounded to fp32
_BY_16_BITS = 0.6  # half a unit of bf16 is up to a sixteenth of a step of E4M3, and less of E5M2


def require_close(values: Tensor, scale: float, case: CastCase, element: FloatFormat, what: str) -> None:
    """Reject what is further from x than half a step, by the mistake that leads there."""
    require_none(_mistakes(values, scale, case, element, what))


def _mistakes(
    values: Tensor, scale: float, case: CastCase, element: FloatFormat, what: str
) -> Iterator[Finding]:
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


def _wrong_amax(scale: float, case: CastCase, element: FloatFormat, what: str) -> Iterator[Finding]:
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
            "a floor is there for zeros: put it under the largest magnitude, amax.clamp(min=1e-30), for the "
            "scale is hundreds of times smaller; 1e-12, as torchao has it, is larger than some gradients",
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


def require_zero(values: Tensor, scale: float, case: CastCase, element: FloatFormat, what: str) -> None:
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


def require_not_finite(values: Tensor, scale: float, case: CastCase, element: FloatFormat, what: str) -> None:
    """Reject a finite result where x is inf or NaN; other elements may become NaN too."""
    hidden = (values * scale).isfinite() & ~case.x.isfinite()
    if hidden.any():
        shown = float((values * scale)[hidden][0])
        raise Rejected(mistakes.inf_hidden(what, f"it stands for {shown:.4g} afterwards"))


# --- the check


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have tensors cast by either behaviour of PyTorch's cast; what they do not stand for is rejected."""
    scaled_cast = function(worker, "scaled_cast", torch.zeros(1), torch.float8_e4m3fn)
    for behaviour, whose in BEHAVIOURS.items():
        for dtype in FORMAT_OF:
            for case in cases():
                answer = _answer(scaled_cast, case, dtype, behaviour)
                _JUDGES[case.kind](
                    answer.values, answer.scale, case, FORMAT_OF[dtype], f"{answer.what} {whose}"
                )
    yield passed("half_a_step", "values · scale is x, to half a step of E4M3 and of E5M2, large or small")
    yield passed("corners", "zeros, an empty tensor and the smallest numbers of fp32 have a scale too")
    yield passed("visible", "what is inf or NaN stays so, whichever PyTorch casts")


_JUDGES = {
    "ordinary": require_close,
    "zero": require_zero,
    "tiny": require_zero,
    "not finite": require_not_finite,
}


@dataclass(frozen=True)
class ReturnedCast:
    """What a learner's function made of a case: values in fp64, and the scale."""

    values: Tensor
    scale: float
    what: str


_CAST_AS = "amp_lessons.course.exercises.small_formats.casts_there:cast_as"


def _answer(
    scaled_cast: LearnersFunction, case: CastCase, dtype: torch.dtype, behaviour: str
) -> ReturnedCast:
    what = f"for {case.what} to {FORMAT_OF[dtype].name}"
    x = case.x.clone()
    returned, _ = scaled_cast.called_by(_CAST_AS, x, dtype, about=what, extra=(behaviour,))
    if not torch.equal(x.nan_to_num(), case.x.nan_to_num()):
        raise Rejected(
            common_findings.inputs_changed("the values of x", "compute with a new tensor: x / scale")
        )
    values, scale = _pair(returned, what)
    _require_values(values, case, dtype, what)
    return ReturnedCast(values.detach().double(), _number(scale, case, what), what)


def _pair(returned: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise Rejected(_wrong_type("a pair of values and scale was", returned, what))
    return returned[0], returned[1]


def _wrong_type(expected: str, seen: Any, what: str) -> Finding:
    return common_findings.wrong_return_type(
        expected, f"{described(seen)}, {what}", "end with return values.to(dtype), scale"
    )


def _require_values(values: Any, case: CastCase, dtype: torch.dtype, what: str) -> None:
    if not isinstance(values, Tensor) or values.dtype != dtype:
        raise Rejected(_wrong_type(f"values of dtype {dtype} were", values, what))
    if values.shape != case.x.shape:
        raise Rejected(_wrong_type(f"values of shape {tuple(case.x.shape)} were", values, what))


def _number(scale: Any, case: CastCase, what: str) -> float:
    """Return the one number that the scale is: a Python float, or a tensor of fp32 with one element."""
    if isinstance(scale, Tensor) and scale.numel() > 1:
        _reject_several(scale, case, what)
    if isinstance(scale, Tensor) and scale.dtype in (torch.float16, torch.bfloat16):
        raise Rejected(mistakes.computed_in_16_bits(what, f"the scale is a tensor of {scale.dtype}"))
    number = float_in(scale)
    if number is None:
        raise Rejected(_wrong_type("a scale of one number was", scale, what))
    return number if math.isfinite(number) else math.nan


def _reject_several(scale: Tensor, case: CastCase, what: str) -> None:
    if scale.numel() == case.x.numel():
        reject(
            "amax_per_element",
            f"every element has a scale of its own, {what}: each becomes the largest number of the format, "
            "and the scales, in 32 bits, hold what was to be stored in 8",
            "the scale comes from the largest magnitude of the whole tensor: x.abs().max()",
        )
    reject(
        "not_one_scale",
        f"there are {scale.numel()} scales, {what}; one for the whole tensor was asked for",
        "x.abs().max() without a dimension; scales per row or block are a recipe of their own",
    )
