"""Are mean and variance right where the plain formula has no digits left, in one pass?"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject
from amp_lessons.exercises.report import common_findings
from amp_lessons.text.describing import describe

_MEAN_WITHIN, _VARIANCE_WITHIN = 1e-5, 1e-2


def check(attempt: Attempt) -> Iterator[Finding]:
    """Let blocks of many kinds be read once, and hold what is returned against fp64."""
    function = attempt.function(iter([torch.ones(1)]))
    for numbers in _cases():
        mean, variance = _returned(function, numbers)
        _require_mean(mean, numbers)
        _require_variance(variance, numbers)
    yield passed("one_pass", "mean and variance came from one pass, in which no block was kept")
    yield passed(
        "digits_left", "the variance is right where the mean is 8,000 standard deviations large, in fp32"
    )


@dataclass
class Numbers:
    """Numbers that come in blocks of these lengths; ``what`` says which they are."""

    what: str
    all: Tensor
    lengths: tuple[int, ...]
    kept: list[int] = field(default_factory=list)
    read: int = 0

    @property
    def mean(self) -> float:
        """The mean of all, in fp64."""
        return float(self.all.double().mean())

    @property
    def variance(self) -> float:
        """The variance of all, in fp64."""
        return float(self.all.double().var(correction=0))

    def blocks(self) -> Iterator[Tensor]:
        """Yield block after block, and note which are still there when they should no longer be."""
        given: list[weakref.ref[Tensor]] = []
        for block in self.all.split(self.lengths):
            self.kept += [i for i, ref in enumerate(given[:-1]) if ref() is not None]
            fresh = block.clone()
            given.append(weakref.ref(fresh))
            self.read += 1
            yield fresh
            del fresh


def _cases() -> list[Numbers]:
    draw = torch.Generator().manual_seed(0)

    def normal(count: int) -> Tensor:
        return torch.randn(count, generator=draw)

    drifting = torch.cat([normal(40) + 3, normal(7) - 2, normal(90) + 10])
    return [
        Numbers("numbers around 0", normal(60), (20, 20, 20)),
        Numbers(
            "blocks of 1, 4 and 35 numbers", torch.cat([normal(1), normal(4) + 5, normal(35)]), (1, 4, 35)
        ),
        Numbers("three blocks with means of their own", drifting, (40, 7, 90)),
        Numbers("numbers around 4096, 0.5 apart", 4096 + 0.5 * normal(300), (100, 3, 90, 107)),
        Numbers("numbers around -4096", -4096 + 0.5 * normal(200), (1,) * 12 + (188,)),
        Numbers("fp16 numbers around 1000", (1000 + 3 * normal(500)).half(), (200, 300)),
        Numbers("bf16 numbers around 300", (300 + 30 * normal(600)).bfloat16(), (512, 88)),
    ]


_INTO_PYTHON = ("item", "tolist", "__float__", "numpy", "__array__")


class _Wide(TorchFunctionMode):
    """Notice what leaves fp32 for more digits."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = ""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _INTO_PYTHON:
            self.seen = self.seen or f"{name}() took numbers out of a tensor, and Python's are fp64"
        if isinstance(result, Tensor) and result.dtype == torch.float64:
            self.seen = self.seen or "a tensor in fp64 was made"
        return result


def _returned(function: LearnersFunction, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return what was returned, two numbers in fp32; anything else is rejected, and so is how it was made."""
    with _Wide() as wide:
        returned = function(numbers.blocks(), about=f"for {numbers.what}")
    if wide.seen:
        reject(
            "state_in_fp64",
            f"{wide.seen}: more digits only hide the problem",
            "keep the state in tensors of fp32",
        )
    if numbers.kept:
        raise Rejected(
            common_findings.blocks_kept(
                "a block was still kept when the one after the next was read: all of them do not fit into "
                "memory",
                "go on with what the state needs of a block, and let the block go",
            )
        )
    if numbers.read < len(numbers.lengths):
        reject(
            "blocks_unread",
            f"{numbers.read} of {len(numbers.lengths)} blocks were read",
            "read the blocks to their end",
        )
    if not (isinstance(returned, tuple | list) and len(returned) == 2 and all(map(_is_number, returned))):
        seen = (
            ", ".join(map(describe, returned)) if isinstance(returned, tuple | list) else describe(returned)
        )
        raise Rejected(
            common_findings.wrong_return_type(
                "two tensors of no dimension in fp32 were", seen, "return mean, variance"
            )
        )
    return returned[0], returned[1]


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.float32 and value.dim() == 0


def _near(seen: Tensor, right: float, within: float, unit: float = 0.0) -> bool:
    return abs(float(seen) - right) <= within * max(abs(right), unit)


def _require_mean(mean: Tensor, numbers: Numbers) -> None:
    deviation = numbers.variance**0.5
    if _near(mean, numbers.mean, _MEAN_WITHIN, deviation):
        return
    said = f"the mean is {float(mean):.7g} where {numbers.mean:.7g} is right, for {numbers.what}"
    blocks = numbers.all.double().split(numbers.lengths)
    if _near(mean, float(torch.stack([each.mean() for each in blocks]).mean()), _MEAN_WITHIN, deviation):
        reject(
            "blocks_weigh_alike",
            f"{said}: every block counts alike",
            "weigh a block by how many numbers it has",
        )
    if numbers.all.dtype != torch.float32:
        reject("summed_in_16_bits", f"{said}", "read a block into fp32 before anything is added up")
    reject(
        "running_mean",
        said,
        "the mean moves by (the block's mean - the mean so far) * its part of all numbers",
    )


def _require_variance(variance: Tensor, numbers: Numbers) -> None:
    if _near(variance, numbers.variance, _VARIANCE_WITHIN):
        return
    said = f"the variance is {float(variance):.5g} where {numbers.variance:.5g} is right, for {numbers.what}"
    count = len(numbers.all)
    if _near(variance, numbers.variance * count / (count - 1), 1e-3):
        reject("divided_by_n_minus_1", f"{said}: it was divided by n - 1", "divide by n, as norm layers do")
    if _near(variance, numbers.variance**0.5, 1e-3):
        reject("standard_deviation", f"{said}: that is its root", "leave out the square root")
    if _near(variance, _within_blocks(numbers), 1e-3):
        reject(
            "between_blocks_forgotten",
            f"{said}: the distances between the blocks' means are missing",
            "two groups whose means differ by delta have delta² n m / (n + m) between them",
        )
    if abs(numbers.mean) > 100 * numbers.variance**0.5:
        reject(
            "digits_cancelled",
            f"{said}: two numbers of nearly the same size were subtracted",
            "sum squared distances from a mean; squares of the numbers themselves have no digits left for it",
        )
    reject(
        "running_variance", said, "sum squared distances from the mean so far, and correct for where it moves"
    )


def _within_blocks(numbers: Numbers) -> float:
    blocks = numbers.all.double().split(numbers.lengths)
    return float(sum((each - each.mean()).square().sum() for each in blocks)) / len(numbers.all)
