"""A cast to eight bits with one scale per tensor: what it stands for is held against x, in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import float_in
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.course.exercises.small_formats.watching_there import BEHAVIOURS, FORMAT_OF
from amp_lessons.formats import FloatFormat

_ROUNDED = 2.0**-11  # what arithmetic in fp32 may be off by: less than a hundredth of a step of the formats
_NO_SCALE_BELOW = 1e-35  # the scale of such numbers is subnormal in fp32, or zero, and its inverse inf
_CAST_AS = "amp_lessons.course.exercises.small_formats.casts_there:cast_as"


def cases(draw: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Draw what to cast, and what it is called, from the simplest to the last corner."""

    def drawn(largest: float, *shape: int) -> Tensor:
        """Draw numbers of very different magnitudes; the largest of them stands behind all others."""
        numbers = torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-6.0).exp()
        numbers.view(-1)[-1] = 10.0
        return numbers / numbers.abs().max() * largest

    yield "weights", drawn(3.0, 32, 32)  # first: here no mistake makes all of them 0
    yield "many numbers of one size", torch.linspace(0.3, -0.4, 5000).roll(2500)
    yield "small gradients", drawn(3e-7, 40, 25)
    yield "large activations, the largest negative", drawn(-3e5, 64, 16)
    # A mantissa near 2 is where a power of two rounded the wrong way saturates, one near 1 where it wastes
    for top in (1.94, 1.01, 1.5, 1.7):
        yield f"numbers up to {top}", drawn(top, 300)
    yield "bf16 activations", drawn(-30.0, 64, 64).bfloat16()
    yield "fp16 gradients", drawn(1e-4, 64, 64).half()
    yield "a transposed matrix", drawn(-90.0, 8, 24).t()
    yield "three dimensions", drawn(0.03, 2, 3, 40)
    yield "a single number", torch.tensor(-0.013)
    yield "zeros", torch.zeros(3, 5)
    yield "fp16 zeros", torch.zeros(7, dtype=torch.float16)
    yield "an empty tensor", torch.empty(0, 4)
    yield "numbers up to 1e-28", drawn(1e-28, 300)
    yield "numbers up to 3e38", drawn(3e38, 300)
    yield "subnormal numbers of fp32", drawn(1e-38, 300) * 1e-4
    for value in (math.inf, -math.inf, math.nan):
        for dtype in (torch.float32, torch.bfloat16):
            numbers = drawn(30.0, 6, 8)
            numbers[2, 3] = value
            yield f"{value} among other numbers", numbers.to(dtype)


# --- the check


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have tensors cast by either behaviour of PyTorch's cast; what they do not stand for is rejected."""
    scaled_cast = bed.function(worker, "scaled_cast", torch.zeros(1), torch.float8_e4m3fn)
    tried = list(cases(draw))
    for behaviour, whose in BEHAVIOURS.items():
        for dtype, element in FORMAT_OF.items():
            for name, x in tried:
                what = f"for {name} to {element.name}"
                values, scale = _answer(scaled_cast, x, dtype, behaviour, what)
                bed.require_none(_mistakes(values, scale, x.double(), element, f"{what} {whose}"))
    yield passed("half_a_step", "values · scale is x, to half a step of E4M3 and of E5M2, large or small")
    yield passed("corners", "zeros, an empty tensor and the smallest numbers of fp32 have a scale too")
    yield passed("visible", "what is inf or NaN does not become a number, whichever PyTorch casts")


def _answer(
    scaled_cast: bed.LearnersFunction, x: Tensor, dtype: torch.dtype, behaviour: str, what: str
) -> tuple[Tensor, float]:
    """Return values in fp64 and the scale, NaN where it is not finite, of the types that were asked for."""
    given = x.clone()
    returned, _ = scaled_cast.called_by(_CAST_AS, given, dtype, about=what, extra=(behaviour,))
    bed.require_unchanged([given], [x], "the values of x", "compute with a new tensor: x / scale")
    hint = "end with return values.to(dtype), scale"
    values, scale = (
        returned if isinstance(returned, tuple | list) and len(returned) == 2 else (returned, None)
    )
    values = bed.require_tensor(values, dtype, x.shape, f"as values {what}", hint)
    if isinstance(scale, Tensor) and scale.dtype in (torch.float16, torch.bfloat16):
        raise bed.Rejected(mistakes.computed_in_16_bits(what, f"the scale is a tensor of {scale.dtype}"))
    number = float_in(scale)
    if number is None:
        bed.reject_type("one number as scale of all was", scale, hint, what)
    return values.detach().double(), number if math.isfinite(number) else math.nan


# --- what is wrong with values and scale


def _mistakes(values: Tensor, scale: float, x: Tensor, element: FloatFormat, what: str) -> Iterator[Finding]:
    amax = float(x.abs().max()) if x.numel() else 0.0
    if not math.isfinite(amax):  # what else is there may become NaN too
        hidden = (values * scale)[~x.isfinite()]
        if hidden.isfinite().any():
            shown = float(hidden[hidden.isfinite()][0])
            yield mistakes.inf_hidden(what, f"it stands for {shown:.4g} afterwards")
    elif amax < _NO_SCALE_BELOW:  # the values may be zero
        if scale > 0 and bool(((values * scale).abs() <= 2 * amax).all()):
            return
        if amax == 0:
            ended = "values are no longer 0" if scale > 0 else "which is no scale"
            yield mistakes.zero_amax(what, f"the scale is {scale:.3g}, {ended}")
        said = f"{what}: the scale is {scale:.3g}: numbers so small have no exact scale in fp32"
        hint = "clamp the largest magnitude from below, by 1e-30 say: what is smaller may become 0, not NaN"
        yield failed("scale_beyond_fp32", said, hint)
    elif not scale > 0:
        hint = "compute it in fp32, from the largest magnitude; 1 / amax leaves fp32 where amax is very small"
        yield failed("no_scale", f"{what}: {scale} is no scale; values · scale cannot be x", hint)
    else:
        yield from _not_close(values, scale, x, element, what)


def _not_close(values: Tensor, scale: float, x: Tensor, element: FloatFormat, what: str) -> Iterator[Finding]:
    """Yield what makes values · scale another tensor than x, or wastes the format."""
    amax = float(x.abs().max())
    wrong = ~_nearest(values, x / scale, element)
    if not (wrong & values.isfinite()).any():  # cast by another scale, nothing is cut or wasted by this one
        misplaced = mistakes.misplaced(amax, scale, element, what)
        yield from [] if misplaced is None else [misplaced]
    if not wrong.any():
        return
    said = f"a value is {float(values[wrong][0]):g} where x / scale is {float(x[wrong][0]) / scale:.4g}"
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(values, (x.float() / scale).to(dtype).to(element.dtype).double()):
            yield mistakes.computed_in_16_bits(what, f"{said}, rounded twice")
    hint = "(x / scale).to(dtype), by the scale that is returned, rounds to the nearest of the format"
    yield failed("wrong_cast", f"{what}: {said}", hint)


def _nearest(values: Tensor, numbers: Tensor, element: FloatFormat) -> Tensor:
    """Tell which values are nearest to numbers, of which those too large count as the largest."""
    bounds = [numbers.clamp(-element.max, element.max) * (1 + off) for off in (-_ROUNDED, _ROUNDED)]
    low, high = (element.quantize(each.float()).double() for each in bounds)
    return (values >= torch.minimum(low, high)) & (values <= torch.maximum(low, high))
