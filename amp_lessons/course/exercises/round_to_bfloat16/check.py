"""Rounding to bf16 by hand: add half a unit, keep the upper sixteen bits, and let ties go to even."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed

_BY_HAND = "amp_lessons.course.exercises.small_formats.casts_there:rounded_by_hand"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have values rounded, from the simplest to the last corner, and hold them against PyTorch's own cast."""
    round_to_bfloat16 = bed.function(worker, "round_to_bfloat16", torch.zeros(1))
    # first of all no cast, whatever it returns
    _result(round_to_bfloat16, "values that bf16 does not have", torch.tensor([0.1, -3.14159, 1e-3]))
    for case in _cases():
        _require_rounded(_result(round_to_bfloat16, case.what, case.x), case)
    said = "values are rounded to the nearest bf16, ties to even, carries and overflow included"
    yield passed("nearest_even", said)
    yield passed("special", "infinities, NaN, signed zeros and subnormal numbers come out right")
    yield passed("without_a_cast", "without a cast to bf16 by PyTorch, and without changing the input")


class RoundingCase(NamedTuple):
    """An fp32 tensor to round; ``what`` names its values, ``code`` the finding if they come out wrong."""

    code: str
    what: str
    x: Tensor


_HINTS = {
    "representable": "a value whose lower 16 bits are zero must come back unchanged, and in every result "
    "they are zero: & ~0xFFFF clears them, .view(torch.float32) reads bits, .to(torch.float32) converts",
    "nearest": "of the two bf16 beside a value the nearer one is asked for: add half a unit of the last kept "
    "bit, no less and no more, then clear the lower 16 bits",
    "ties": "a tie goes to the neighbour whose last kept bit is 0: what must be added depends on that bit, "
    "and a carry goes on into the exponent",
    "overflow": "let the carry run into the exponent: above the largest bf16 lies inf",
    "infinity": "inf has lower bits of zero and needs no special case, if nothing else is done to it",
    "nan": "rounding can turn a NaN into inf or into zero: leave NaN out with torch.where(x.isnan(), …)",
    "negative": "on the bits the sign is separate: rounding the magnitude is the same for both signs",
    "subnormal": "subnormals have a fixed spacing, 2⁻¹³³ in bf16; arithmetic on the bits keeps it by itself",
}


def _from_bits(*codes: int) -> Tensor:
    return torch.tensor(codes, dtype=torch.int64).to(torch.int32).view(torch.float32)


def _cases() -> Iterator[RoundingCase]:
    """Yield what to try, from the simplest to the last corner."""
    representable = torch.tensor([0.0, 1.0, -2.0, 0.5, 256.0, 1.5, 1.0078125, -3.140625])
    above = _from_bits(0x3F80FFFF, 0x4049FFF0, 0x3E00C000, 0x3F808001)
    below = _from_bits(0x3F800001, 0x40490100, 0x3E003FFF, 0x3F807FFF)
    ties = _from_bits(*(code << 16 | 0x8000 for code in range(0x3F80, 0x4180, 5)))
    carrying = _from_bits(0x3FFFFFFF, 0x40FFC000)
    subnormal = _from_bits(0x00000001, 0x00008000, 0x00018000, 0x007FFFFF, 0x0000C000)
    nan = _from_bits(0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001)
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randint(-(2**31), 2**31, (4000,), generator=draw).to(torch.int32)
    matrix = torch.linspace(-3, 3, 12).reshape(3, 4)
    yield RoundingCase("representable", "values that bf16 has already", representable)
    yield RoundingCase("nearest", "values nearer to the next bf16", above)
    yield RoundingCase("nearest", "values nearer to the bf16 below", below)
    yield RoundingCase("ties", "values exactly halfway between two bf16", ties)
    yield RoundingCase("negative", "negative values", -torch.tensor([1.00390625, 3.14159, 0.1, 2.7e-20]))
    yield RoundingCase("carry", "values that round up into the next binade", carrying)
    yield RoundingCase("subnormal", "subnormal values", subnormal)
    yield RoundingCase("overflow", "values above the largest bf16", _from_bits(0x7F7F8000, 0x7F7FFFFF))
    yield RoundingCase("infinity", "infinities", torch.tensor([torch.inf, -torch.inf]))
    yield RoundingCase("nan", "NaN with any payload", nan)
    yield RoundingCase("signed_zero", "negative zero", torch.tensor([-0.0]))
    yield RoundingCase("random", "random bit patterns", drawn.view(torch.float32))
    yield RoundingCase("shape", "a matrix", matrix)
    yield RoundingCase("shape", "a matrix that is not contiguous", matrix.t())
    yield RoundingCase("shape", "an empty tensor", torch.empty(0))
    yield RoundingCase("shape", "a single number", torch.tensor(0.1))


def _result(round_to_bfloat16: bed.LearnersFunction, what: str, values: Tensor) -> Any:
    """Return what the learner's function makes of values, without a cast and without changing the input."""
    x = values.clone()
    result, cast = round_to_bfloat16.called_by(_BY_HAND, x, about=f"for {what}")
    if cast:
        said = "PyTorch's cast to bf16 did the rounding, which is what is to be done by hand"
        bed.reject("casts_to_bfloat16", said, "work on the bits: x.view(torch.int32)")
    hint = "a view shares its memory: bits + …, not bits +="
    bed.require_unchanged([x], [values], "the numbers in x", hint)
    return result


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


def _require_rounded(result: Any, case: RoundingCase) -> None:
    """Reject another form, or other values than those of PyTorch's cast; any NaN is as good as another."""
    hint = "end with .view(torch.float32), which reads bits of int32, or with .float(); keep the shape"
    bed.require_tensor(result, torch.float32, case.x.shape, f"for {case.what}", hint)
    right = case.x.bfloat16().float()
    wrong = (_bits(result) != _bits(right)) & ~(result.isnan() & right.isnan())
    if wrong.any():
        given, seen, wanted = (
            f"{values[wrong][0]:.9g} (0x{int(_bits(values)[wrong][0]) & 0xFFFFFFFF:08X})"
            for values in (case.x, result.detach(), right)
        )
        hint = _HINTS.get(case.code, "compare x.view(torch.int32) with the bits of the result")
        bed.reject(case.code, f"{case.what}: {given} became {seen} instead of {wanted}", hint)
