"""The idea of FSDP on two real processes: who keeps what, in which dtype, and does it train as one would?"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises import ranks_contained as ranks
from amp_lessons.exercises.attempt import Attempt, callable_with, reject
from amp_lessons.exercises.sharded_masters import on_ranks
from amp_lessons.text.describing import describe

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def check(attempt: Attempt) -> Iterator[Finding]:
    """Train in three dtypes; every weight, gradient and message is looked at on the rank itself."""
    _require_class(attempt.value, attempt.names[0])
    remarks, *_ = ranks.run(on_ranks.train, attempt.value, _DTYPES)
    yield passed("masters_sharded", "each rank keeps its share of the weights in fp32, and no other")
    yield passed("computed_in_half", "weights were sent, and computed with, in the dtype asked for")
    yield passed("reduced_in_fp32", "gradients were added up over ranks in fp32, and averaged")
    yield passed("as_one_process", "after every step the weights are those of one process")
    yield from remarks


def _require_class(value: Any, name: str) -> None:
    right = inspect.isclass(value) and all(
        callable(getattr(value, each, None)) for each in ("gather", "reduce")
    )
    if not right:
        reject(
            "not_sharding",
            f"the check was given {describe(value)}, not a class {name} with the methods gather and reduce",
            "pass the class itself, without making an instance",
        )
    callable_with(value, name, None, None)
