"""Are mean and variance right where the plain formula has no digits left, in one pass?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report import common_findings

_MEAN_WITHIN, _VARIANCE_WITHIN = 1e-5, 1e-2


_THERE = "amp_lessons.course.exercises.running_variance.blocks_there:call"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let blocks of many kinds be read once, and hold what is returned against fp64."""
    running_variance = bed.function(worker, "running_variance", [])
    for numbers in _cases(draw):
        mean, variance = _returned(running_variance, numbers)
        _require_mean(mean, numbers)
        _require_variance(variance, numbers)
    yield passed("one_pass", "mean and variance came from one pass, without keeping the blocks")
    said = "the variance is right where the mean is 8,000 standard deviations large, in fp32"
    yield passed("digits_left", said)


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
        Numbers("numbers around 4096, spread by 0.5", 4096 + 0.5 * normal(300), (100, 3, 90, 107)),
        Numbers("numbers around -4096", -4096 + 0.5 * normal(200), (1,) * 12 + (188,)),
        Numbers("fp16 numbers around 1000", (1000 + 3 * normal(500)).half(), (200, 300)),
        Numbers("bf16 numbers around 300", (300 + 30 * normal(600)).bfloat16(), (512, 88)),
    ]


def _returned(running_variance: bed.LearnersFunction, numbers: Numbers) -> tuple[Tensor, Tensor]:
    """Return what was returned, two numbers in fp32; anything else is rejected, and so is how it was made."""
    told, _ = running_variance.called_by(_THERE, *numbers.blocks, about=f"for {numbers.what}")
    returned, wide, kept, read = told
    if wide:
        said = f"{wide}: more digits only hide the problem"
        bed.reject("state_in_fp64", said, "keep the state in tensors of fp32")
    if kept > 1:  # the first, from which a state begins, may outlive its turn
        said = f"{kept} blocks were still kept after the next one had been read: all do not fit into memory"
        hint = "go on with what the state needs of a block, and let the block go"
        raise bed.Rejected(common_findings.blocks_kept(said, hint))
    if read < len(numbers.lengths):
        said = f"{read} of {len(numbers.lengths)} blocks were read"
        bed.reject("blocks_unread", said, "read the blocks to their end")
    hint = "return mean, variance, in fp32"
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        bed.reject_type("two tensors were", returned, hint)
    mean, variance = (bed.require_tensor(each, torch.float32, (), "", hint) for each in returned)
    return mean, variance


def _near(seen: Tensor, right: float, within: float, unit: float = 0.0) -> bool:
    return abs(float(seen) - right) <= within * max(abs(right), unit)


def _require_mean(mean: Tensor, numbers: Numbers) -> None:
    if _near(mean, numbers.mean, _MEAN_WITHIN, numbers.variance**0.5):
        return
    bed.reject(
        "running_mean",
        f"the mean is {float(mean):.7g} where {numbers.mean:.7g} is right, for {numbers.what}",
        "read a block into fp32 first; the mean moves by (the block's mean - the mean so far) * its part of "
        "all numbers",
    )


def _require_variance(variance: Tensor, numbers: Numbers) -> None:
    right, count = numbers.variance, len(numbers.all)
    if _near(variance, right, _VARIANCE_WITHIN):
        return
    why = ": it was divided by n - 1" if _near(variance, right * count / (count - 1), 1e-3) else ""
    bed.reject(
        "running_variance",
        f"the variance is {float(variance):.5g} where {right:.5g} is right, for {numbers.what}{why}",
        "sum squared distances from a mean: squares of the numbers themselves have no digits left; two "
        "groups whose means differ by delta have delta² n m / (n + m) between them; divide by n "
        "(torch.var of one number is NaN unless correction=0)",
    )
