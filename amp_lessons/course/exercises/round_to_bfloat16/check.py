"""Rounding to bf16 by hand: add half a unit, keep the upper sixteen bits, and let ties go to even."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.formats.dtypes import dtype_name


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Have values rounded, from the simplest to the last corner, and hold them against PyTorch's own cast."""
    round_to_bfloat16 = function(worker, "round_to_bfloat16", torch.zeros(1))
    to_round = RoundingCase("cast", "values that bf16 does not have", torch.tensor([0.1, -3.14159, 1e-3]))
    _result(round_to_bfloat16, to_round)  # first of all no cast, whatever it returns
    for case in _cases():
        result = _result(round_to_bfloat16, case)
        _require_fp32(result)
        _require_rounded(result.detach(), case)
    yield passed(
        "nearest_even", "values are rounded to the nearest bf16, ties to even, carries and overflow included"
    )
    yield passed("special", "infinities, NaN, signed zeros and subnormal numbers come out right")
    yield passed("without_a_cast", "without a cast to bf16 by PyTorch, and without changing the input")


@dataclass(frozen=True)
class RoundingCase:
    """An fp32 tensor to round; ``what`` names its values, ``code`` the finding if they come out wrong."""

    code: str
    what: str
    x: Tensor


def _from_bits(*codes: int) -> Tensor:
    return torch.tensor(codes, dtype=torch.int64).to(torch.int32).view(torch.float32)


def _random_bits(count: int) -> Tensor:
    draw = torch.Generator().manual_seed(0)
    values = _from_bits(*torch.randint(-(2**31), 2**31, (count,), generator=draw).tolist())
    return values[values.isfinite()]


_HALF_A_UNIT = 0x8000
_LARGEST_BF16 = 0x7F7F0000


def _cases() -> list[RoundingCase]:
    """List what to try, from the simplest to the last corner."""
    ties = _from_bits(*(code << 16 | _HALF_A_UNIT for code in range(0x3F80, 0x4180, 5)))
    representable = torch.tensor([0.0, 1.0, -2.0, 0.5, 256.0, 1.5, 1.0078125, -3.140625])
    matrix = torch.linspace(-3, 3, 12).reshape(3, 4)
    subnormal = _from_bits(0x00000001, 0x00008000, 0x00018000, 0x007FFFFF, 0x0000C000)
    overflowing = _from_bits(_LARGEST_BF16 + _HALF_A_UNIT, 0x7F7FFFFF)
    nan = _from_bits(0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001)
    return [
        RoundingCase("representable", "values that bf16 has already", representable),
        RoundingCase(
            "truncates",
            "values nearer to the next bf16",
            _from_bits(0x3F80FFFF, 0x4049FFF0, 0x3E00C000, 0x3F808001),
        ),
        RoundingCase(
            "rounds_up",
            "values nearer to the bf16 below",
            _from_bits(0x3F800001, 0x40490100, 0x3E003FFF, 0x3F807FFF),
        ),
        RoundingCase("ties", "values exactly halfway between two bf16", ties),
        RoundingCase("negative", "negative values", -torch.tensor([1.00390625, 3.14159, 0.1, 2.7e-20])),
        RoundingCase(
            "carry", "values that round up into the next binade", _from_bits(0x3FFFFFFF, 0x40FFC000)
        ),
        RoundingCase("subnormal", "subnormal values", subnormal),
        RoundingCase("overflow", "values above the largest bf16", overflowing),
        RoundingCase("infinity", "infinities", torch.tensor([torch.inf, -torch.inf])),
        RoundingCase("nan", "NaN with any payload", nan),
        RoundingCase("signed_zero", "negative zero", torch.tensor([-0.0])),
        RoundingCase("random", "random bit patterns", _random_bits(4000)),
        RoundingCase("shape", "a matrix", matrix),
        RoundingCase("shape", "a matrix that is not contiguous", matrix.t()),
        RoundingCase("shape", "an empty tensor", torch.empty(0)),
        RoundingCase("shape", "a single number", torch.tensor(0.1)),
    ]


_HINTS = {
    "representable": "a value whose lower 16 bits are zero must come back unchanged",
    "ties": "a tie goes to the neighbour whose last kept bit is 0: what must be added depends on that bit",
    "overflow": "let the carry run into the exponent: above the largest bf16 lies inf",
    "infinity": "inf has lower bits of zero and needs no special case, if nothing else is done to it",
    "nan": "the rounding can turn a NaN into inf or into zero: leave NaN out with torch.where(x.isnan(), …)",
    "negative": "on the bits the sign is separate: rounding the magnitude is the same for both signs",
    "subnormal": "subnormals have a fixed spacing, 2⁻¹³³ in bf16; arithmetic on the bits keeps it by itself",
}
_OF_ANY_OTHER = "compare x.view(torch.int32) with the bits of the result"


_BY_HAND = "amp_lessons.course.exercises.small_formats.casts_there:rounded_by_hand"


def _result(round_to_bfloat16: LearnersFunction, case: RoundingCase) -> Any:
    """Return what the learner's function makes of a case, without a cast and without changing the input."""
    x = case.x.clone()
    result, cast = round_to_bfloat16.called_by(_BY_HAND, x, about=f"for {case.what}")
    _require_no_cast(cast)
    _require_unchanged(x, case)
    return result


def _require_no_cast(cast: bool) -> None:
    if cast:
        reject(
            "casts_to_bfloat16",
            "PyTorch's cast to bf16 did the rounding, which is what is to be done by hand",
            "work on the bits: x.view(torch.int32)",
        )


def _require_unchanged(x: Tensor, case: RoundingCase) -> None:
    if not torch.equal(_bits(x), _bits(case.x)):
        reject(
            "input_changed",
            "the input tensor was changed in place",
            "a view shares its memory: use bits + …, not bits +=",
        )


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.int32)


_FROM_DTYPE: dict[Any, str] = {
    torch.int32: "the bits are those of fp32 numbers: end with .view(torch.float32)",
    torch.bfloat16: "fp32 holds every bf16 value: end with .float()",
}


def _require_fp32(result: Any) -> None:
    if not isinstance(result, Tensor) or result.dtype != torch.float32:
        got = dtype_name(result.dtype) if isinstance(result, Tensor) else described(result)
        message = f"an fp32 tensor was expected, not {got}"
        hint = _FROM_DTYPE.get(getattr(result, "dtype", None), "return a tensor in torch.float32")
        reject("wrong_return_type", message, hint)


def _require_rounded(result: Tensor, case: RoundingCase) -> None:
    """Reject another shape, or other values than those of PyTorch's cast; any NaN is as good as another."""
    if result.shape != case.x.shape:
        reject(
            "shape",
            f"for {case.what} of shape {tuple(case.x.shape)} the result has shape {tuple(result.shape)}",
            "keep the shape",
        )
    right = case.x.bfloat16().float()
    wrong = (_bits(result) != _bits(right)) & ~(result.isnan() & right.isnan())
    if wrong.any():
        _reject_values(result, right, wrong, case)


def _reject_values(result: Tensor, right: Tensor, wrong: Tensor, case: RoundingCase) -> NoReturn:
    given, seen, wanted = (float(values[wrong][0]) for values in (case.x, result, right))
    message = f"{case.what}: {given!r} became {seen!r} instead of {wanted!r}"
    positive = case.x > 0
    if case.code == "representable" and torch.equal(result[positive], _bits(case.x).float()[positive]):
        reject(
            "bits_converted",
            f"{message}, its bits read as an integer",
            ".to(torch.float32) converts the integer; .view(torch.float32) reinterprets its bits",
        )
    # subnormals come late: who leaves their lower bits set has cleared them, or had none, everywhere else
    if case.code not in ("overflow", "subnormal") and (_bits(result) & 0xFFFF)[~result.isnan()].any():
        reject(
            "not_bfloat16",
            f"{message}; results are no bf16 values: their lower 16 bits are not all 0",
            "clear the lower 16 bits at the end: & ~0xFFFF",
        )
    if case.code == "representable" and torch.equal(wrong, (_bits(case.x) & 0x10000).bool()):
        reject(
            "too_few_bits",
            f"{message}; what comes out wrong is each value whose last bit of bf16 is 1, and no other",
            "bf16 keeps the upper 16 of the 32 bits, no fewer",
        )
    if case.code == "representable" and bool(((case.x < 0) & (result < 0))[wrong].all()):
        reject("negative", message, _HINTS["negative"])
    if case.code == "ties" and bool((result.abs() >= right.abs()).all()):
        reject("ties_away_from_zero", f"{message}: ties were always rounded up", _HINTS["ties"])
    if case.code in _DIRECTIONS:
        _reject_direction(result, message, case)
    reject(case.code, message, _HINTS.get(case.code, _OF_ANY_OTHER))


def _reject_direction(result: Tensor, message: str, case: RoundingCase) -> NoReturn:
    """Name the direction in which all these values were rounded, if they went one way."""
    below = _bits(case.x) & ~0xFFFF  # the values are positive
    upwards, hint = _DIRECTIONS[case.code]
    if torch.equal(_bits(result), below + upwards):
        reject(case.code, message, hint)
    reject("not_nearest", message, "of the two bf16 beside a value the nearer one is asked for")


# which neighbour all results are then, in units of the int32, and what to do about it
_DIRECTIONS = {
    "truncates": (0, "cutting the lower 16 bits off rounds towards zero; add half a unit first"),
    "rounds_up": (0x10000, "values nearer to the lower neighbour go down: add half a unit, no more"),
}
