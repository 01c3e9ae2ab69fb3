"""The exercise at the heart of the course: the mixed precision training loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding
from amp_lessons.course.exercises.loops import Bench
from amp_lessons.course.exercises.report.results import SideBySide
from amp_lessons.course.exercises.train_with_amp.solution import train_with_amp


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems."""
    return Bench(train_with_amp).judge(worker, draw)
