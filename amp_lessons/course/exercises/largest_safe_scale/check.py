"""How far can gradients be scaled up before one of them leaves fp16?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import described, function, require_unchanged
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.common_findings import float_in, remark_on_type


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the scale of many kinds of gradients, and hold it against PyTorch's own cast."""
    largest_safe_scale = function(worker, "largest_safe_scale", [])
    notes: dict[str, Finding] = {}
    for what, gradients in _cases(draw):
        before = [gradient.clone() for gradient in gradients]
        returned = largest_safe_scale(gradients, about=f"for {what}")
        hint = "compute with copies: g.abs(), not g.abs_()"
        require_unchanged(gradients, before, "the gradients", hint)
        answer = ReturnedScale(_number(returned), what, gradients)
        _require_scale(answer)
        _require_no_overflow(answer)
        _require_largest(answer)
        for remark in _remarks(returned, answer):
            notes.setdefault(remark.code, remark)
    yield from _what_holds("stricter_limit" in notes)
    yield from notes.values()


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
    ]


_LARGEST_FP16 = 65504.0
_FROM_HERE_INF = 65520.0  # halfway between 65504 and 65536, where the next fp16 would be
_NEXT_TO_LARGEST_FP32 = 2.0**126
_BELOW = "take the power of two below it; math.frexp splits a number into a fraction and a power of two"


@dataclass(frozen=True)
class ReturnedScale:
    """The scale that a learner gives for some gradients; ``what`` says which."""

    scale: float
    what: str
    gradients: list[Tensor]

    @cached_property
    def right(self) -> float:
        """The answer by PyTorch's cast: the largest power of two at which nothing becomes inf."""
        return _largest_power(self.gradients, lambda scaled: scaled.half().isfinite())

    @property
    def strict(self) -> float:
        """The answer of those who allow no number above 65504, not even one that rounds to it."""
        return _largest_power(self.gradients, lambda scaled: scaled.abs() <= _LARGEST_FP16)

    @property
    def without_signs(self) -> float:
        """The answer of those who look at positive gradients only."""
        positive = [gradient.clamp(min=0) for gradient in self.gradients]
        return _largest_power(positive, lambda scaled: scaled.half().isfinite())

    @property
    def lands_at(self) -> float:
        """The largest magnitude of the gradients, multiplied by the scale that was returned."""
        return self.scale * max(float(gradient.abs().max()) for gradient in self.gradients)

    @property
    def case(self) -> str:
        """The gradients, the scale that was returned for them, and the right one, as a message says it."""
        return f"for {self.what} ({self.scale:g} instead of {self.right:g})"


def _largest_power(gradients: list[Tensor], fits: Callable[[Tensor], Tensor]) -> float:
    """Find by trying the largest power of two at which all gradients fit."""
    ends = torch.stack([end.double() for each in gradients for end in (each.min(), each.max())])
    scales = 2.0 ** torch.arange(-126, 128, dtype=torch.float64)
    return float(scales[fits(ends * scales[:, None]).all(1)].max())


def _number(returned: Any) -> float:
    scale = float_in(returned)
    if scale is None:
        raise Rejected(
            common_findings.wrong_return_type("a float was", described(returned), "return one float")
        )
    return scale


def _require_scale(answer: ReturnedScale) -> None:
    """Reject what multiplies gradients by no power of two, or by that of another question."""
    scale, case = answer.scale, answer.case
    if not (math.isfinite(scale) and scale > 0):
        reject("not_a_scale", f"{scale} is no scale, {case}", "the answer is a positive, finite power of two")
    if scale == answer.without_signs != answer.right:
        raise Rejected(
            rules.loss.signs_ignored(
                f"a negative gradient becomes -inf, {case}", "magnitudes decide: g.abs().max()"
            )
        )
    if math.frexp(scale)[0] != 0.5:
        reject(
            "not_a_power_of_two",
            f"{scale:g} is not a power of two, {case}: multiplying by it would round gradients",
            f"65520 / largest is what no scale may reach: {_BELOW}",
        )
    if answer.right < 1 <= scale:
        reject("not_below_one", f"a scale may be below 1, {case}", "start below 1, and do not clamp")


def _require_no_overflow(answer: ReturnedScale) -> None:
    if answer.scale <= answer.right:
        return
    if _FROM_HERE_INF <= answer.lands_at <= 2.0**16:
        reject(
            "limit_too_high",
            f"at this scale the largest gradient is {answer.lands_at:.6g}, which becomes inf in fp16, "
            f"{answer.case}",
            "65504 is the largest fp16; from 65520 on, halfway to 65536, it rounds up to inf. math.log2 may "
            "round too, next to a whole number",
        )
    if answer.lands_at >= _NEXT_TO_LARGEST_FP32:
        reject(
            "limit_too_high",
            f"at this scale the largest gradient is {answer.lands_at:.3g}, which fp32 or bf16 may hold, but "
            f"fp16 makes inf, {answer.case}",
            "the limit is fp16's: its largest number is 65504",
        )
    reject(
        "overflows",
        f"at this scale a gradient becomes inf, {answer.case}",
        "round the exponent down, also below zero: math.floor does, int() and round() do not. Or is the "
        "limit twice fp16's?"
        if answer.scale == answer.right * 2
        else "the largest magnitude decides, over all tensors and both signs: max of g.abs().max()",
    )


def _require_largest(answer: ReturnedScale) -> None:
    if answer.scale in (answer.right, answer.strict):
        return
    if answer.scale == 2.0**16:
        raise Rejected(
            rules.loss.capped(
                f"65536 is returned although a larger scale would still overflow nothing, {answer.case}"
            )
        )
    reject(
        "too_small",
        f"a larger scale would still overflow nothing, {answer.case}",
        "all below 65520 stays finite, and the largest magnitude alone decides",
    )


def _remarks(returned: Any, answer: ReturnedScale) -> Iterator[Finding]:
    yield from remark_on_type(returned, float)
    if answer.scale != answer.right:
        yield note(
            "stricter_limit",
            f"safe, but half of the largest scale {answer.case}: a number between 65504 and 65520 still "
            "rounds to 65504",
            "to find the largest scale, ask for largest * scale < 65520, in Python floats",
        )


def _what_holds(stricter: bool) -> Iterator[Finding]:
    """List what holds; under a stricter limit the scale is the largest only by that limit."""
    yield passed("safe", "no gradient overflows at the scale returned")
    yield passed("largest", f"at twice the scale one would{' lie above 65504' if stricter else ''}")
    yield passed("power_of_two", "the scale is a power of two, so scaling rounds nothing")
