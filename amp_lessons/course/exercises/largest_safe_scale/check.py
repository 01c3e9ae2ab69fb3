"""How far can gradients be scaled up before one of them leaves fp16?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the scale of many kinds of gradients, and hold it against PyTorch's own cast."""
    largest_safe_scale = bed.function(worker, "largest_safe_scale", [])
    stricter = ""
    for what, gradients in _cases(draw):
        before = [gradient.clone() for gradient in gradients]
        returned = largest_safe_scale(gradients, about=f"for {what}")
        hint = "compute with copies: g.abs(), not g.abs_()"
        bed.require_unchanged(gradients, before, "the gradients", hint)
        scale = float_in(returned)
        if scale is None:
            bed.reject_type("a float was", returned, "return one float")
        if not _require_largest(scale, what, gradients):
            stricter = what
        yield from remark_on_type(returned, float)
    yield passed("safe", "no gradient overflows at the scale returned")
    yield passed("largest", f"at twice the scale one would {'lie above 65504' if stricter else 'overflow'}")
    yield passed("power_of_two", "the scale is a power of two, so scaling rounds nothing")
    if stricter:
        yield note(
            "stricter_limit",
            f"accepted, as nothing above 65504 was allowed; for {stricter} twice the scale would do too, "
            "because a number between 65504 and 65520 rounds to 65504",
            "to find that scale, ask for largest * scale < 65520, in Python floats",
        )


def _cases(draw: torch.Generator) -> list[tuple[str, list[Tensor]]]:
    """Draw gradients whose largest magnitude lies at different places, of different signs and sizes."""

    def spread(*shape: int) -> Tensor:
        power = 2.0 ** int(torch.randint(-2, 3, (), generator=draw))
        return power * torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-12.0).exp()

    ordinary = [spread(8, 4) * 0.01, spread(8) * 0.1, spread(3, 2, 2).abs()]
    return [
        ("gradients of ordinary size", ordinary),
        ("a single tensor", [spread(5).abs() * 1e-3]),
        (
            "64 gradients of one size",
            [torch.full((8, 8), 0.3) * 2.0 ** int(torch.randint(-9, 9, (), generator=draw))],
        ),
        ("the largest gradient negative", [torch.tensor([0.001, -0.3]), torch.tensor([0.02, -0.07])]),
        ("the largest gradient in the first tensor", [torch.tensor([0.7, 0.1]), torch.tensor([0.002])]),
        ("a largest gradient that times 512 is 65504", [torch.tensor([65504.0 * 2.0**-9, 1.0])]),
        ("a largest gradient that times 512 is 66159", [torch.tensor([66159.0 * 2.0**-9])]),
        ("a largest gradient that times 512 is 65521", [torch.tensor([1.0, -65521.0 * 2.0**-9])]),
        ("a largest gradient that times 2**30 is 65520", [torch.tensor([65520.0 * 2.0**-30])]),
        ("a largest gradient that times 512 is 65512", [torch.tensor([65512.0 * 2.0**-9])]),
        ("a largest gradient that times 2**30 is 65519.996", [torch.tensor([-65519.99609375 * 2.0**-30])]),
        ("very small gradients", [spread(6) * 1e-9]),
        ("gradients too large for fp16 as they are", [torch.tensor([3.0, -1.0e6])]),
        # their scales are 2**127 and 2**-112: a loop must go that far, and no scale leaves fp32
        ("tiny gradients, the largest 2.9e-34", [torch.tensor([1e-38, -1.5 * 2.0**-112])]),
        ("gradients next to the largest fp32", [torch.tensor([1.0, 3e38])]),
        ("a tensor of zeros among others", [torch.zeros(3), torch.tensor([0.02])]),
        ("fp16 gradients", [torch.tensor([0.5, 12.0], dtype=torch.float16)]),
        ("small fp16 gradients", [torch.tensor([6e-8, -0.002], dtype=torch.float16)]),
    ]


_LARGEST_FP16 = 65504.0
_BELOW = "take the power of two below it; math.frexp splits a number into a fraction and a power of two"


def _largest_power(gradients: list[Tensor], fits: Callable[[Tensor], Tensor]) -> float:
    """Find by trying the largest power of two at which all gradients fit."""
    ends = torch.stack([end.double() for each in gradients for end in (each.min(), each.max())])
    scales = 2.0 ** torch.arange(-126, 128, dtype=torch.float64)
    return float(scales[fits(ends * scales[:, None]).all(1)].max())


def _require_largest(scale: float, what: str, gradients: list[Tensor]) -> bool:
    """Reject what is not the largest safe power of two; return whether it is, not half of it.

    The half is right for those who allow no number above 65504, not even one that rounds to it.
    """
    right = _largest_power(gradients, lambda scaled: scaled.half().isfinite())
    strict = _largest_power(gradients, lambda scaled: scaled.abs() <= _LARGEST_FP16)
    largest = max((float(each.flatten()[each.abs().argmax()]) for each in gradients), key=abs)
    case = f"for {what} ({scale:g} instead of {right:g})"
    if not (math.isfinite(scale) and scale > 0):
        said = f"{scale} is no scale, {case}"
        bed.reject("not_a_scale", said, "the answer is a positive, finite power of two")
    if math.frexp(scale)[0] != 0.5:
        said = f"{scale:g} is not a power of two, {case}: multiplying by it would round gradients"
        bed.reject("not_a_power_of_two", said, f"65520 / largest is what no scale may reach: {_BELOW}")
    if scale > right:
        bed.reject(
            "overflows",
            f"the largest gradient, {largest:.9g}, becomes {largest * scale:.9g} at this scale, which fp16 "
            f"makes inf, {case}",
            "the largest magnitude of all tensors decides, and from 65520 on fp16 rounds up to inf; round "
            "the exponent down, also below zero: a scale may be below 1, a logarithm may be "
            "rounded up, and in fp16 a quotient like 65504 / 0.5 is inf",
        )
    if scale not in (right, strict):
        said = f"at twice this scale the largest gradient, {largest:.9g}, would become "
        said += f"{largest * 2 * scale:.9g}, which still overflows nothing, {case}"
        hint = (
            "all below 65520 stays finite, the largest magnitude alone decides, and scales go on above 65536"
        )
        bed.reject("too_small", said, hint)
    return scale == right
