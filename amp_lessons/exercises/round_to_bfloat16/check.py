"""Rounding to bfloat16 by hand: add half a unit, keep the upper sixteen bits, and let ties go to even."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.text.describing import describe


class _CastWatch(TorchFunctionMode):
    """Notice when PyTorch makes bfloat16 values of anything else."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.dtype == torch.bfloat16:
            given = {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
            reinterprets, moves = func is torch.Tensor.view, torch.bfloat16 in given <= _NOTHING_TO_ROUND
            self.seen |= not reinterprets and not moves
        return result


_NOTHING_TO_ROUND = {torch.bfloat16, torch.bool}


def _from_bits(*codes: int) -> Tensor:
    return torch.tensor(codes, dtype=torch.int64).to(torch.int32).view(torch.float32)


def _random_bits(count: int) -> Tensor:
    codes = torch.randint(
        -(2**31), 2**31, (count,), generator=torch.Generator().manual_seed(0), dtype=torch.int64
    )
    values = codes.to(torch.int32).view(torch.float32)
    return values[values.isfinite()]


_LARGEST_BFLOAT16 = 0x7F7F0000


def _cases() -> list[tuple[str, str, Tensor]]:
    """List what to try, from the simplest to the last corner, with the code of the finding it leads to."""
    upper = torch.arange(0x3F80, 0x4180, 5) << 16
    ties = (upper + 0x8000).to(torch.int32).view(torch.float32)
    return [
        (
            "representable",
            "values that bfloat16 has already",
            torch.tensor([0.0, 1.0, -2.0, 0.5, 256.0, 1.5]),
        ),
        ("truncates", "values just below the next bfloat16", _from_bits(0x3F80FFFF, 0x4049FFF0, 0x3E00C000)),
        ("rounds_up", "values just above a bfloat16", _from_bits(0x3F800001, 0x40490100, 0x3E003FFF)),
        ("ties", "values exactly halfway between two bfloat16", ties),
        ("negative", "negative values", -torch.tensor([1.00390625, 3.14159, 0.1, 2.7e-20])),
        ("carry", "values that round up into the next binade", _from_bits(0x3FFFFFFF, 0x40FFC000)),
        (
            "subnormal",
            "subnormal values",
            _from_bits(0x00000001, 0x00008000, 0x00018000, 0x007FFFFF, 0x0000C000),
        ),
        ("overflow", "values above the largest bfloat16", _from_bits(_LARGEST_BFLOAT16 + 0x8000, 0x7F7FFFFF)),
        ("infinity", "infinities", torch.tensor([torch.inf, -torch.inf])),
        (
            "nan",
            "NaN with any payload",
            _from_bits(0x7FC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF, 0xFF800001),
        ),
        ("signed_zero", "negative zero", torch.tensor([-0.0])),
        ("random", "random bit patterns", _random_bits(4000)),
        ("shape", "a matrix", torch.linspace(-3, 3, 12).reshape(3, 4)),
        ("shape", "a matrix that is not contiguous", torch.linspace(-3, 3, 12).reshape(3, 4).t()),
        ("shape", "an empty tensor", torch.empty(0)),
        ("shape", "a single number", torch.tensor(0.1)),
    ]


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = common_findings.uncallable(attempt, "round_to_bfloat16", torch.zeros(1))
    if finding is not None:
        return Verdict((finding,))
    for code, what, x in _cases():
        before = x.clone()
        watch = _CastWatch()

        def watched(x: Tensor = x, watch: _CastWatch = watch) -> Any:
            with watch:
                return attempt(x)

        outcome = sandbox.call(watched)
        finding = common_findings.not_attempted(outcome) or _mistake(
            outcome, watch.seen, code, what, x, before
        )
        if finding is not None:
            return Verdict((finding,))
    return Verdict(_WHAT_HOLDS)


def _mistake(
    outcome: sandbox.Outcome, cast: bool, code: str, what: str, x: Tensor, before: Tensor
) -> Finding | None:
    finding = common_findings.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        return common_findings.raised(outcome, f"for {what}")
    if cast:
        return failed(
            "casts_to_bfloat16",
            "PyTorch made bfloat16 values of other numbers: its cast rounds",
            "work on the bits: x.view(torch.int32)",
        )
    if not torch.equal(x.view(torch.int32), before.view(torch.int32)):
        return failed(
            "input_changed",
            "the input tensor was changed in place",
            "a view shares its memory: use bits + …, not bits +=",
        )
    result = outcome.value
    if not isinstance(result, Tensor) or result.dtype != torch.float32:
        got = result.dtype if isinstance(result, Tensor) else describe(result)
        return failed(
            "wrong_return_type", f"a float32 tensor was expected, not {got}", "end with .view(torch.float32)"
        )
    if result.shape != x.shape:
        return failed(
            "shape",
            f"for {what} of shape {tuple(x.shape)} the result has shape {tuple(result.shape)}",
            "keep the shape",
        )
    return _wrong_value(result.detach(), code, what, x)


def _wrong_value(result: Tensor, code: str, what: str, x: Tensor) -> Finding | None:
    right = x.bfloat16().float()
    same = (result.contiguous().view(torch.int32) == right.contiguous().view(torch.int32)) | (
        result.isnan() & right.isnan()
    )
    if same.all():
        return None
    worst = (~same).reshape(-1).nonzero()[0]
    given, seen, wanted = (float(t.reshape(-1)[worst]) for t in (x, result, right))
    message = f"{what}: {given!r} became {seen!r} instead of {wanted!r}"
    if code != "overflow" and (result.contiguous().view(torch.int32) & 0xFFFF)[~result.isnan()].any():
        return failed(
            "not_bfloat16",
            f"{message}; results are no bfloat16 values: their lower 16 bits are not all 0",
            "clear the lower 16 bits at the end: & ~0xFFFF",
        )
    if code == "ties" and bool((result.abs() >= right.abs()).all()):
        return failed("ties_away_from_zero", f"{message}: ties were always rounded up", _HINTS["ties"])
    return failed(code, message, _HINTS.get(code, "compare x.view(torch.int32) with the bits of the result"))


_HINTS = {
    "representable": "a value whose lower 16 bits are zero must come back unchanged",
    "truncates": "cutting the lower 16 bits off rounds towards zero; add half a unit first",
    "ties": "a tie goes to the neighbour whose last kept bit is 0: add 0x7FFF plus that last bit, not 0x8000",
    "overflow": "let the carry run into the exponent: above the largest bfloat16 lies inf",
    "infinity": "inf has lower bits of zero and needs no special case, if nothing else is done to it",
    "nan": "the rounding can turn a NaN into inf or into zero: leave NaN out with torch.where(x.isnan(), …)",
    "negative": "on the bits the sign is separate: rounding the magnitude is the same for both signs",
    "subnormal": "no special case is needed for subnormals if the arithmetic is on the bits",
}

_WHAT_HOLDS = (
    passed(
        "nearest_even",
        "values are rounded to the nearest bfloat16, ties to even, carries and overflow included",
    ),
    passed("special", "infinities, NaN, signed zeros and subnormal numbers come out right"),
    passed("without_a_cast", "without a cast to bfloat16 by PyTorch, and without changing the input"),
)
