"""How far can gradients be scaled up before one of them leaves fp16?"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.results import Exercise, Finding, Verdict, failed, note, passed
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
        remarks += [finding] if finding is not None and finding not in remarks else []
    return Verdict((*_WHAT_HOLDS, *remarks))


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
        ("a largest gradient that reaches 65504 exactly", [torch.tensor([65504.0 * 2.0**-9, 1.0])]),
        ("a largest gradient just above a power of two of 65504", [torch.tensor([65504.0 * 2.0**-9 * 1.01])]),
        ("very small gradients", [spread(6) * 1e-9]),
        ("gradients too large for float16 as they are", [torch.tensor([3.0, -1.0e6])]),
        ("a tensor of zeros among others", [torch.zeros(3), torch.tensor([0.02])]),
        ("float16 gradients", [torch.tensor([0.5, 12.0], dtype=torch.float16)]),
    ]


def _right(gradients: list[Tensor]) -> float:
    """Find the answer by trying: double while everything stays finite in float16, halve while it does not."""

    def fits(exponent: int) -> bool:
        return all(bool((g.double() * 2.0**exponent).half().isfinite().all()) for g in gradients)

    return 2.0 ** max(exponent for exponent in range(-40, 160) if fits(exponent))


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
            f"{seen:g} is not a power of two, {case}: multiplying by it would round every gradient",
            "round the exponent down: 2 ** floor(log2(65504 / largest))",
        )
    if right < 1 <= seen:
        return failed("not_below_one", f"a scale may be below 1, {case}", "start below 1, and do not clamp")
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
    if seen == 2.0**16:
        return failed(
            "capped",
            f"the search stops at 65536, {case}",
            "GradScaler begins at 65536, but may grow beyond it",
        )
    return failed(
        "too_small",
        f"a larger scale would still overflow nothing, {case}",
        "65504 is the largest float16, and the largest magnitude alone decides",
    )


_WHAT_HOLDS = (
    passed("safe", "no gradient overflows at the scale returned"),
    passed("largest", "at twice the scale one would"),
    passed("power_of_two", "the scale is a power of two, so scaling rounds nothing"),
)

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
        "Which single number among all the gradients decides, and what is the largest number that "
        "float16 has?",
        "The scale must satisfy `largest * scale <= 65504`, with `largest` the greatest magnitude in "
        "any tensor, of either sign.",
        "Take `65504 / largest` and round it down to a power of two: `2.0 ** math.floor(math.log2(65504 "
        "/ largest))`.",
    ),
    explanation=(
        "Only the largest magnitude matters, since scaling keeps the order. `frexp` gives the exponent "
        "exactly, where `log2` may round up just below a power of two. Dividing 65504 instead is right as "
        "well, but for a number that lands between 65504 and 65520: it still rounds to 65504. `GradScaler` "
        "finds the scale by trial: it doubles it until something overflows, and halves it again."
    ),
    answer=largest_safe_scale,
    answer_source=source_of(largest_safe_scale, imports="import math\n"),
    examine=_examine,
)
