"""A checkpoint without the scaler's state: after each restart the scale begins at 65536 again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from amp_lessons.course.exercises.patients.case import Case, Curve, Observed
from amp_lessons.course.exercises.patients.digits import Training, training

_LOSS_WEIGHT = 2.0**9  # so that the scale has to be halved about six times before gradients fit into fp16
_EPOCHS = 2  # before the restart, and after it
_LOSS = "loss on all images"
_STILL = "batches after the restart before a weight changed"

Functions = tuple[Callable[..., Any], Callable[..., Any]]


@dataclass
class _Job:
    """A training as a job makes it when it starts: everything anew, until a checkpoint is loaded."""

    run: Training
    losses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.run.optimizer, step_size=_EPOCHS, gamma=0.9)
        self.scaler = torch.amp.GradScaler(self.run.device)

    def objects(self) -> tuple[Any, ...]:
        return self.run.model, self.run.optimizer, self.scheduler, self.scaler

    def train(self) -> None:
        """Train for some epochs, and write down the loss on all images after each batch."""
        for _ in range(_EPOCHS):
            for x, y in self.run.loader:
                self.run.optimizer.zero_grad()
                with torch.autocast(self.run.device, dtype=torch.float16):
                    loss = self.run.loss_fn(self.run.model(x), y)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.run.optimizer)
                self.scaler.update()
                self.losses.append(self.run.loss() / _LOSS_WEIGHT)
            self.scheduler.step()


def observe(functions: Functions, seed: int) -> Observed:
    """Train, save, start a new job, load, and train on: the loss after each batch, before and after."""
    save, load = functions
    first, second = (_Job(training(seed, loss_weight=_LOSS_WEIGHT)) for _ in range(2))
    first.train()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        with torch.random.fork_rng():  # loading sets the random numbers, which are not ours to set
            save(path, *first.objects(), _EPOCHS)
            load(path, *second.objects())
    second.train()
    stood = next((i for i, loss in enumerate(second.losses) if loss != first.losses[-1]), len(second.losses))
    losses = (*first.losses, *second.losses)
    return Observed(
        (Curve(_LOSS, "batch", losses),), {"batches before the restart": len(first.losses), _STILL: stood}
    )


def shows(seen: Observed) -> bool:
    """Whether several batches pass after the restart without any effect."""
    return seen.numbers[_STILL] >= 3


CASE = Case.beside(__file__, observe=observe, shows=shows)
