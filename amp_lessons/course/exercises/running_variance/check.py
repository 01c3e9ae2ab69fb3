"""Are mean and variance right where the plain formula has no digits left, in one pass?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.report import common_findings

_MEAN_WITHIN, _VARIANCE_WITHIN = 1e-5, 1e-2


_THERE = "amp_lessons.course.exercises.running_variance.blocks_there:call"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let blocks of many kinds be read once, and hold what is returned against fp64."""
    running_variance = function(worker, "running_variance", [])
    for numbers in _cases(draw):
        mean, variance = _returned(running_variance, numbers)
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

    @property
    def mean(self) -> float:
        """The mean of all, in fp64."""
        return float(self.all.double().mean())

    @property
    def variance(self) -> float:
        """The variance of all, in fp64."""
        return float(self.all.double().var(correction=0))

    @property
    def blocks(self) -> list[Tensor]:
        """The blocks that they come in."""
        return list(self.all.split(self.lengths))


def _cases(draw: torch.Generator) -> list[Numbers]:
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


def _returned(running_variance: LearnersFunction, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return what was returned, two numbers in fp32; anything else is rejected, and so is how it was made."""
    told, _ = running_variance.called_by(_THERE, *numbers.blocks, about=f"for {numbers.what}")
    returned, wide, kept, read = told
    if wide:
        reject(
            "state_in_fp64",
            f"{wide}: more digits only hide the problem",
            "keep the state in tensors of fp32",
        )
    if kept > 1:  # the first, from which a state begins, may outlive its turn
        raise Rejected(
            common_findings.blocks_kept(
                f"{kept} blocks were still kept after the next one had been read: all of them do not fit "
                "into memory",
                "go on with what the state needs of a block, and let the block go",
            )
        )
    if read < len(numbers.lengths):
        reject(
            "blocks_unread",
            f"{read} of {len(numbers.lengths)} blocks were read",
            "read the blocks to their end",
        )
    if not (isinstance(returned, tuple | list) and len(returned) == 2 and all(map(_is_number, returned))):
        seen = (
            ", ".join(map(described, returned)) if isinstance(returned, tuple | list) else described(returned)
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
