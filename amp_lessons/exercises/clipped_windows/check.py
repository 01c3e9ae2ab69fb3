"""A loop with windows and clipping: at first nothing has to be clipped, then the norm has to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from amp_lessons.audit.findings import Finding
from amp_lessons.exercises.accumulate_gradients.check import PROBLEMS
from amp_lessons.exercises.attempt import Attempt
from amp_lessons.exercises.clipped_windows.solution import train
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops import examine

_TINY, _PLAIN, _BFLOAT16, _SHORT, _POISONED, _SHORT_POISONED = PROBLEMS
_NEVER = (
    1e6  # above every norm there, scaled or not: what is wrong with a window shows before what is clipped
)
_UNCLIPPED = (_TINY, _PLAIN, _SHORT, _POISONED)
_CLIPPED = tuple(replace(problem, max_norm=0.03) for problem in PROBLEMS)


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems in windows of batches, without a limit for the norm and with."""
    attempt.function(*[None] * 5, accumulation_steps=None, max_norm=None, device_type=None, dtype=None)
    unlimited = Attempt(partial(attempt.value, max_norm=_NEVER), attempt.names)
    list(examine.examine(unlimited, partial(train, max_norm=_NEVER), _UNCLIPPED, ("accumulation_steps",)))
    yield from examine.examine(attempt, train, _CLIPPED, ("accumulation_steps", "max_norm"))
