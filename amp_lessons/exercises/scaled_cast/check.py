"""A cast to eight bits with one scale per tensor: what it stands for is held against x, in fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject, run
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import float_in
from amp_lessons.exercises.scaled_cast.cases import Case, cases
from amp_lessons.exercises.scaled_cast.judging import require_close, require_not_finite, require_zero
from amp_lessons.exercises.small_formats import mistakes
from amp_lessons.exercises.small_formats.watching import BEHAVIOURS, FORMAT_OF, CastWatch
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding]:
    """Have tensors cast by either behaviour of PyTorch's cast; what they do not stand for is rejected."""
    scaled_cast = attempt.function(torch.zeros(1), torch.float8_e4m3fn)
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
class Answer:
    """What a learner's function made of a case: values in fp64, and the scale."""

    values: Tensor
    scale: float
    what: str


def _answer(scaled_cast: LearnersFunction, case: Case, dtype: torch.dtype, behaviour: str) -> Answer:
    what = f"for {case.what} to {FORMAT_OF[dtype].name}"
    x = case.x.clone()

    def watched() -> Any:
        with CastWatch(behaviour):
            return scaled_cast.function(x, dtype)

    returned = run(watched, about=what)
    if not torch.equal(x.nan_to_num(), case.x.nan_to_num()):
        raise Rejected(
            common_findings.inputs_changed("the values of x", "compute with a new tensor: x / scale")
        )
    values, scale = _pair(returned, what)
    _require_values(values, case, dtype, what)
    return Answer(values.detach().double(), _number(scale, case, what), what)


def _pair(returned: Any, what: str) -> tuple[Any, Any]:
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise Rejected(_wrong_type("a pair of values and scale was", returned, what))
    return returned[0], returned[1]


def _wrong_type(expected: str, seen: Any, what: str) -> Finding:
    return common_findings.wrong_return_type(
        expected, f"{describe(seen)}, {what}", "end with return values.to(dtype), scale"
    )


def _require_values(values: Any, case: Case, dtype: torch.dtype, what: str) -> None:
    if not isinstance(values, Tensor) or values.dtype != dtype:
        raise Rejected(_wrong_type(f"values of dtype {dtype} were", values, what))
    if values.shape != case.x.shape:
        raise Rejected(_wrong_type(f"values of shape {tuple(case.x.shape)} were", values, what))


def _number(scale: Any, case: Case, what: str) -> float:
    """Return the one number that the scale is: a Python float, or a tensor of fp32 with one element."""
    if isinstance(scale, Tensor) and scale.numel() > 1:
        _reject_several(scale, case, what)
    if isinstance(scale, Tensor) and scale.dtype in (torch.float16, torch.bfloat16):
        raise Rejected(mistakes.computed_in_16_bits(what, f"the scale is a tensor of {scale.dtype}"))
    number = float_in(scale)
    if number is None:
        raise Rejected(_wrong_type("a scale of one number was", scale, what))
    return number if math.isfinite(number) else math.nan


def _reject_several(scale: Tensor, case: Case, what: str) -> None:
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
