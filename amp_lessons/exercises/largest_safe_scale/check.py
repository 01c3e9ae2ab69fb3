"""How far can gradients be scaled up before one of them leaves fp16?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import conduct
from amp_lessons.exercises.report.results import Exercise, Finding, Verdict, failed, note, passed
from amp_lessons.exercises.sources import source_of


def largest_safe_scale(gradients):  # type: ignore[no-untyped-def]
    """Return the largest power of two that overflows no gradient in float16."""
    limit = math.nextafter(65520.0, 0.0)  # from 65520 on, float16 rounds up to inf; below, down to 65504
    largest = max(gradient.abs().max().item() for gradient in gradients)
    _, exponent = math.frexp(limit / largest)
    return 2.0 ** (exponent - 1)


def _examine(attempt: Any) -> Verdict:
    finding = conduct.uncallable(attempt, "largest_safe_scale", [])
    if finding is not None:
        return Verdict((finding,))
    remarks: list[Finding] = []
    for what, gradients in _cases():
        before = [gradient.clone() for gradient in gradients]
        outcome = sandbox.call(attempt, gradients)
        finding = conduct.not_attempted(outcome) or _mistake(outcome, what, gradients, before)
        if finding is not None and not finding.ok:
            return Verdict((finding,))
        if finding is not None and finding.code not in [remark.code for remark in remarks]:
            remarks.append(finding)
    return Verdict((*_what_holds(remarks), *remarks))


def _cases() -> list[tuple[str, list[Tensor]]]:
    """Draw gradients whose largest magnitude lies at different places, of different signs and sizes."""
    draw = torch.Generator().manual_seed(0)

    def spread(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-12.0).exp()

    ordinary = [spread(8, 4) * 0.01, spread(8) * 0.1, spread(3, 2, 2).abs()]
    return [
        ("gradients of ordinary size", ordinary),
        ("a single tensor", [spread(5).abs() * 1e-3]),
        ("the largest gradient negative", [torch.tensor([0.001, -0.3]), torch.tensor([0.02, -0.07])]),
        ("the largest gradient in the first tensor", [torch.tensor([0.7, 0.1]), torch.tensor([0.002])]),
        ("a largest gradient that times 512 is 65504", [torch.tensor([65504.0 * 2.0**-9, 1.0])]),
        ("a largest gradient that times 512 is 66159", [torch.tensor([66159.0 * 2.0**-9])]),
        ("a largest gradient that times 512 is 65521", [torch.tensor([1.0, -65521.0 * 2.0**-9])]),
        ("a largest gradient that times 2**30 is 65520", [torch.tensor([65520.0 * 2.0**-30])]),
        ("a largest gradient that times 512 is 65512", [torch.tensor([65512.0 * 2.0**-9])]),
        ("a largest gradient that times 2**30 is 65519.996", [torch.tensor([-65519.99609375 * 2.0**-30])]),
        ("very small gradients", [spread(6) * 1e-9]),
        ("gradients too large for float16 as they are", [torch.tensor([3.0, -1.0e6])]),
        ("a tensor of zeros among others", [torch.zeros(3), torch.tensor([0.02])]),
        ("float16 gradients", [torch.tensor([0.5, 12.0], dtype=torch.float16)]),
    ]


_LARGEST_FLOAT16 = 65504.0
_FROM_HERE_INF = 65520.0  # halfway between 65504 and 65536, where the next float16 would be
_AS_A_FORMULA = "2.0 ** (math.ceil(math.log2(65520 / largest)) - 1)"


def _right(gradients: list[Tensor]) -> float:
    """Find the answer by asking PyTorch's cast what becomes inf."""
    return _largest_power(gradients, lambda scaled: scaled.half().isfinite())


def _strict(gradients: list[Tensor]) -> float:
    """Find the answer of those who allow no number above 65504, not even one that rounds to it."""
    return _largest_power(gradients, lambda scaled: scaled.abs() <= _LARGEST_FLOAT16)


def _largest_power(gradients: list[Tensor], fits: Callable[[Tensor], Tensor]) -> float:
    """Find by trying the largest power of two at which all gradients fit."""
    scales = [2.0**exponent for exponent in range(-40, 160)]
    return max(scale for scale in scales if all(bool(fits(g.double() * scale).all()) for g in gradients))


def _mistake(
    outcome: sandbox.Outcome, what: str, gradients: list[Tensor], before: list[Tensor]
) -> Finding | None:
    finding = conduct.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return conduct.raised(outcome, f"for {what}")
    if any(a.dtype != b.dtype or not torch.equal(a, b) for a, b in zip(gradients, before, strict=True)):
        return failed(
            "inputs_changed",
            "the gradients were changed in place",
            "compute with copies: g.abs(), not g.abs_()",
        )
    value = outcome.value
    if isinstance(value, Tensor) and value.numel() == 1:
        finding = note("returned_a_tensor", "a float was asked for, this is a tensor", "return value.item()")
        return _wrong_value(float(value), what, gradients) or finding
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return failed(
            "wrong_return_type", f"a float was expected, not {conduct.describe(value)}", "return one float"
        )
    return _wrong_value(float(value), what, gradients)


def _wrong_value(seen: float, what: str, gradients: list[Tensor]) -> Finding | None:
    right = _right(gradients)
    if seen == right:
        return None
    case = f"for {what} ({seen:g} instead of {right:g})"
    if not (math.isfinite(seen) and seen > 0):
        return failed(
            "not_a_scale", f"{seen} is no scale, {case}", "the answer is a positive, finite power of two"
        )
    if seen == _right([gradient.clamp(min=0) for gradient in gradients]):
        return failed(
            "signs_ignored", f"a negative gradient becomes -inf, {case}", "magnitudes decide: g.abs().max()"
        )
    if math.frexp(seen)[0] != 0.5:
        return failed(
            "not_a_power_of_two",
            f"{seen:g} is not a power of two, {case}: multiplying by it would round gradients",
            f"take the largest power of two below 65520 / largest: {_AS_A_FORMULA}",
        )
    if right < 1 <= seen:
        return failed("not_below_one", f"a scale may be below 1, {case}", "start below 1, and do not clamp")
    lands_at = seen * max(float(gradient.abs().max()) for gradient in gradients)
    if _FROM_HERE_INF <= lands_at <= 2.0**16:
        return failed(
            "limit_too_high",
            f"at this scale the largest gradient is {lands_at:.6g}, which becomes inf in float16, {case}",
            "65504 is the largest float16; from 65520 on, halfway to 65536, it rounds up to inf. math.log2 "
            "may round too, next to a whole number",
        )
    if seen == right * 2:
        return failed(
            "overflows",
            f"at this scale a gradient becomes inf, {case}",
            "round the exponent down, also below zero: math.floor does, int() and round() do not",
        )
    if seen > right:
        return failed(
            "overflows",
            f"at this scale a gradient becomes inf, {case}",
            "the largest magnitude decides, over all tensors and both signs: max of g.abs().max()",
        )
    if seen == _strict(gradients):
        return note(
            "stricter_limit",
            f"safe, but half of the largest scale {case}: a number between 65504 and 65520 still rounds to "
            "65504",
            f"to find the largest scale, look for largest * scale < 65520, in Python floats: {_AS_A_FORMULA}",
        )
    if seen == 2.0**16:
        return failed(
            "capped",
            f"65536 is returned although a larger scale would still overflow nothing, {case}",
            "do not stop at 65536: GradScaler begins there, but may grow beyond it",
        )
    return failed(
        "too_small",
        f"a larger scale would still overflow nothing, {case}",
        "all below 65520 stays finite, and the largest magnitude alone decides",
    )


_WHAT_HOLDS = (
    passed("safe", "no gradient overflows at the scale returned"),
    passed("largest", "at twice the scale one would"),
    passed("power_of_two", "the scale is a power of two, so scaling rounds nothing"),
)


def _what_holds(remarks: list[Finding]) -> list[Finding]:
    """List what holds; under a stricter limit the scale is the largest only by that limit."""
    if all(remark.code != "stricter_limit" for remark in remarks):
        return list(_WHAT_HOLDS)
    safe, largest, power_of_two = _WHAT_HOLDS
    return [safe, replace(largest, message="at twice the scale one would lie above 65504"), power_of_two]


EXERCISE = Exercise(
    id="largest_safe_scale",
    title="The largest safe scale",
    lesson="03",
    difficulty=2,
    minutes=8,
    names=("largest_safe_scale",),
    task=(
        "Given a list of gradient tensors, return the largest power of two by which all of them can be "
        "multiplied without any becoming inf in float16. The gradients are finite, and at least one is "
        "not zero."
    ),
    stub='''def largest_safe_scale(gradients):
    """Return, as a float, the largest power of two that overflows none of these tensors in float16."""
    raise NotImplementedError
''',
    hints=(
        "Which single number among all the gradients decides, and from which number on does float16 round "
        "to inf?",
        "The scale must satisfy `largest * scale < 65520`, with `largest` the greatest magnitude in any "
        "tensor, of either sign, as a Python float (`.item()`). The largest float16 is 65504, the next would "
        "be 65536: below the middle, 65520, a number still rounds to 65504.",
        f"Take the largest power of two below `65520 / largest`, not equal to it: `{_AS_A_FORMULA}`.",
    ),
    explanation=(
        "Only the largest magnitude matters, since scaling keeps the order. The largest float16 is 65504, "
        "but what lies below 65520, the middle between it and 65536, still rounds to it. 65520 itself "
        "becomes inf, so `nextafter` takes the last float before it. Many take 65504 as the limit: that is "
        "safe too, and gives half the scale where a number would land between the two. `frexp` gives the "
        "exponent exactly, where `log2` may round to a whole number close by. `GradScaler` finds the scale "
        "by trial: it doubles it until something overflows, and halves it again."
    ),
    answer=largest_safe_scale,
    answer_source=source_of(largest_safe_scale, imports="import math\n"),
    examine=_examine,
)
