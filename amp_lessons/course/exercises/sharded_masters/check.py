"""The idea of FSDP on two real processes: who keeps what, in which dtype, and does it train as one would?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed, ranks
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.ranks import RANKS
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.sharded_masters import mistakes, shards_there
from amp_lessons.course.exercises.sharded_masters.mistakes import Beside
from amp_lessons.course.exercises.sharded_masters.shards_there import FEATURES, OUTPUTS, WEIGHTS

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_FAINT = 2.0**-18  # of such a loss fp16 holds gradients that lose a bit when they are divided
_LOSS_WEIGHTS = (1.0, _FAINT, 1.0)  # of each step
_PHASES = 1 + 3 * len(_LOSS_WEIGHTS)
_RATE = 2.0**-9  # updates so small that 16 bits would lose most of them
_POISON = 1e6  # beyond fp16, within bf16


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Train in three dtypes; what each rank held and sent after every call is looked at here."""
    _require_class(worker)
    problems = [Problem.drawn(dtype, draw) for dtype in _DTYPES]
    seen = ranks.run(worker, f"{shards_there.__name__}:train", [each.given() for each in problems])
    told = zip_longest(*(each["told"] for each in sorted(seen, key=lambda each: each["rank"])))
    remarks = [each for n, runs in enumerate(told) for each in _remarks(problems[n], runs)]
    if seen[0]["left"] is not None:
        raise Rejected(_ended(seen[0]["told"][-1]))
    if any([len(run["phases"]) for run in each["told"]] != [_PHASES] * len(_DTYPES) for each in seen):
        raise Rejected(common_findings.ended("your code answered in the place of the check"))
    yield passed("masters_sharded", "each rank keeps its share of the weights in fp32, and no other")
    yield passed("computed_in_half", "weights were sent, and computed with, in the dtype asked for")
    yield passed("reduced_in_fp32", "gradients were added up over ranks in fp32, and averaged")
    yield passed("as_one_process", "after every step the weights are those of one process")
    yield from remarks


def _require_class(worker: Worker) -> None:
    other = worker.call(f"{shards_there.__name__}:other_than_a_class", Handle(0))
    if other is not None:
        reject(
            "not_sharding",
            f"the check was given {other}, not a class ShardedMasters with the methods gather and reduce",
            "pass the class itself, without making an instance",
        )
    bed.function(worker, "ShardedMasters", None, None)


@dataclass(frozen=True)
class Problem:
    """One training: the weights at the start, and for each step the batches of all ranks."""

    dtype: torch.dtype
    weights: Tensor
    steps: list[list[tuple[Tensor, Tensor]]]

    @classmethod
    def drawn(cls, dtype: torch.dtype, draw: torch.Generator) -> Problem:
        """Draw weights that cannot be shared out evenly, and batches; rank 1's last overflows in fp16."""
        assert WEIGHTS % RANKS
        steps = []
        for step in range(len(_LOSS_WEIGHTS)):
            batches = []
            for rank in range(RANKS):
                inputs = torch.randn(4 + rank, FEATURES, generator=draw)
                targets = torch.randn(4 + rank, OUTPUTS, generator=draw) * math.exp(rank)
                poison = _POISON if step == len(_LOSS_WEIGHTS) - 1 and rank == 1 else 1.0
                batches.append((inputs, targets * poison))
            steps.append(batches)
        return cls(dtype, torch.randn(WEIGHTS, generator=draw) * 0.5, steps)

    def given(self) -> dict[str, Any]:
        """Return what the worker is told of it."""
        beside, steps = Beside(self.weights, self.dtype), []
        for loss_weight, batches in zip(_LOSS_WEIGHTS, self.steps, strict=True):
            beside.compute(batches, loss_weight)
            steps.append({"loss_weight": loss_weight, "batches": batches, "made": beside.may_step})
            beside.step(_RATE)
        return {
            "dtype": self.dtype,
            "weights": self.weights,
            "share": beside.share,
            "rate": _RATE,
            "steps": steps,
        }


def _remarks(problem: Problem, runs: tuple[dict[str, Any] | None, ...]) -> list[Finding]:
    """Return what is to be remarked on how the ranks trained on a problem; reject the first mistake."""
    beside, sent = Beside(problem.weights, problem.dtype), []
    phases = zip_longest(*(run["phases"] if run else [] for run in runs))
    for number, of_ranks in enumerate(phases):
        step, what = divmod(number - 1, 3)
        if number and what == 1:
            beside.compute(problem.steps[step], _LOSS_WEIGHTS[step])
        elif number and what == 2:
            beside.step(_RATE)
        for rank, seen in enumerate(of_ranks):
            if seen is None:  # of a rank that was stopped
                continue
            if number == 0:
                require_none(mistakes.of_shard(seen, beside, rank))
            elif what == 0:
                require_none(mistakes.of_gathering(seen, beside))
            elif what == 1:
                require_none(mistakes.of_reducing(seen, beside, rank))
                sent = seen["sent"]
            else:
                require_none(mistakes.of_masters(seen, beside, rank))
    return list(mistakes.of_traffic(sent, beside))


def _ended(told: dict[str, Any]) -> Finding:
    """Say of the rank that left first why it did."""
    if told["left"]:
        return common_findings.leaving(told["left"])
    said = bed.said_of(bed.as_raised(told["raised"]), f"in {told['part']}" if told["part"] else "")
    stub = said == common_findings.NOT_ATTEMPTED and told["part"]
    return common_findings.unfinished(told["part"]) if stub else said
