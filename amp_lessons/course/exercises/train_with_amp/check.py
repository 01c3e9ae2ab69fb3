"""The exercise at the heart of the course: the mixed precision training loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.loops import Bench
from amp_lessons.course.exercises.train_with_amp.solution import train_with_amp


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems."""
    return Bench(train_with_amp).judge(worker, draw)
