"""A loop with windows and clipping: at first nothing has to be clipped, then the norm has to be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.accumulate_gradients.check import PROBLEMS
from amp_lessons.course.exercises.clipped_windows.solution import train
from amp_lessons.course.exercises.loops import Bench

_NEVER = 1e6  # above every norm, scaled or not: what is wrong with a window shows before what is clipped
_CLIPPED = tuple(replace(problem, max_norm=0.03) for problem in PROBLEMS)
_UNCLIPPED = tuple(replace(each, max_norm=_NEVER) for each in PROBLEMS if each.dtype == torch.float16)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems in windows of batches, without a limit for the norm and with."""
    fields = "accumulation_steps", "max_norm"
    applied = "true gradient of its window, clipped to max_norm"
    return Bench(train, (*_UNCLIPPED, *_CLIPPED), fields, applied=applied).judge(worker, draw)
