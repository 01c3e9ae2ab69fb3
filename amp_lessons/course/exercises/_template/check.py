"""What is asked of an attempt, as one question: are the values twice as large?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for twice the values of several tensors; what is not so is rejected, and the check ends there."""
    exercise_id = bed.function(worker, "exercise_id", torch.ones(1))
    for what, x in _cases(draw):
        given = x.clone()
        result = exercise_id(given, about=f"for {what}")
        _require_unchanged(given, x)
        _require_twice(result, x, what)
    yield passed("twice", "every value is twice what it was, in the dtype it had")


def _cases(draw: torch.Generator) -> list[tuple[str, Tensor]]:
    return [
        ("a float32 matrix", torch.randn(3, 4, generator=draw)),
        ("a single fp16 number", torch.randn((), generator=draw).half()),
    ]


def _require_unchanged(given: Tensor, x: Tensor) -> None:
    if not torch.equal(given, x):
        bed.reject("inputs_changed", "the tensor was changed in place", "compute with a new one: x * 2")


def _require_twice(result: Any, x: Tensor, what: str) -> None:
    if not isinstance(result, Tensor) or result.dtype != x.dtype:
        said = f"a tensor of dtype {x.dtype} was expected for {what}, not {bed.described(result)}"
        bed.reject("wrong_return_type", said, "x * 2 keeps the dtype of x")
    if not torch.equal(result, 2 * x):  # a power of two: nothing is rounded, so nothing is tolerated
        bed.reject("not_twice", f"the values are not twice what they were, for {what}", "multiply by 2")
