"""A few steps of training in mixed precision, audited."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch

from amp_lessons import audit
from amp_lessons.advice.subject import Subject
from amp_lessons.autocast import in_fp32, region
from amp_lessons.autocast.cuda_on_cpu import Float16Products
from amp_lessons.autocast.running import gradients_on

Optimizers = Callable[[Iterable[Any]], torch.optim.Optimizer]


def default_optimizer(parameters: Iterable[Any]) -> torch.optim.Optimizer:
    """Make the optimizer that is taken where none is given."""
    return torch.optim.AdamW(parameters, lr=1e-4)


@gradients_on()
def audited_steps(
    subject: Subject,
    dtype: torch.dtype,
    islands: tuple[str, ...],
    *,
    optimizer: Optimizers,
    steps: int,
    seconds: float,
) -> audit.Report:
    """Train a copy of the model for ``steps`` steps on its batch, by CUDA's rules, watched; fewer in haste.

    ``islands`` run in fp32, and in fp16 the loss is scaled: it is the training that the advice is to be for.
    """
    training = copy.deepcopy(subject.training)
    updates = optimizer([each for each in training.parameters() if each.requires_grad])
    scaler = torch.amp.GradScaler(subject.device.type, enabled=dtype is torch.float16)
    deadline, longest_s = time.monotonic() + seconds, 0.0
    every = max(1, steps // 4)
    with (
        torch.random.fork_rng(),
        audit.watch(training.model, every=every) as seen,
        in_fp32(training, islands),
    ):
        for _ in range(steps):
            start = time.monotonic()
            updates.zero_grad()
            with region("cuda", dtype, subject.device):
                loss = training(subject.batch)
            scaler.scale(loss).backward()
            scaler.step(updates)
            scaler.update()
            longest_s = max(longest_s, time.monotonic() - start)
            if time.monotonic() + longest_s > deadline:
                break
    return seen.report


@gradients_on()
def step_by_rules(subject: Subject, dtype: torch.dtype) -> None:
    """Run forward and backward pass once under CUDA's autocast rules. Raises what the model raises there."""
    on_cpu = subject.device.type == "cpu"
    with torch.random.fork_rng(), Float16Products() if on_cpu else nullcontext():
        with region("cuda", dtype, subject.device):
            loss = subject.training(subject.batch)
        loss.backward()
    subject.training.zero_grad()
