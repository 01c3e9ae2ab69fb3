"""The mended checkpoint holds what the exercise of lesson 04 asks for, and is asked the same."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding
from amp_lessons.course.exercises.resume_training.check import judge as judge_checkpoints


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Save a training that has come some way, load it into a fresh one, and look for what is lost."""
    return judge_checkpoints(worker, draw)
