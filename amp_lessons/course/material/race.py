"""Two training runs side by side: fp32 against mixed precision, from the same weights, on the same batches.

The runs take turns, one step each, so that they can be watched, stopped after any step, and continued.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

import torch
import torch.nn.functional as F
from torch import nn

from amp_lessons.course import training
from amp_lessons.course.material import charlm, data, models
from amp_lessons.precisions import HALVES, precision_name


@dataclass(frozen=True)
class Task:
    """What a race trains: initial weights, batches, loss, SGD's learning rate and momentum, and how long.

    ``chance_loss`` is the loss of guessing, where an untrained network begins.
    """

    model: nn.Module
    loader: training.Loader
    loss_fn: training.LossFn
    learning_rate: float
    epochs: int
    steps: int
    chance_loss: float


def _digits(device: torch.device) -> Task:
    batches = data.batches(data.digits().train, batch_size=64, device=device)
    chance = torch.tensor(float(models.CLASSES)).log().item()
    return Task(models.digits_classifier(128), batches, F.cross_entropy, 0.05, 8, 8 * len(batches), chance)


def _characters(device: torch.device) -> Task:
    text = charlm.python_help_text()
    vocabulary = charlm.Vocabulary.of(text)
    batches = charlm.CharacterBatches(vocabulary.encode(text), batches=40)
    model = models.seeded(lambda: charlm.CharacterModel(len(vocabulary)))
    chance = torch.tensor(float(len(vocabulary))).log().item()
    return Task(model, batches, charlm.next_character_loss, 0.1, 3, 3 * len(batches), chance)


TASKS: dict[str, Callable[[torch.device], Task]] = {
    "digits": _digits,
    "character language model": _characters,
}


@dataclass
class Runner:
    """One run: its loss at every step so far, the steps it skipped (from 0), and the seconds it computed."""

    precision: str
    device: torch.device
    steps: Iterator[training.Step]
    losses: list[float] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def advance(self) -> None:
        """Train one step, and wait until the device has finished it."""
        started = time.perf_counter()
        step = next(self.steps)
        torch.get_device_module(self.device).synchronize()
        self.seconds += time.perf_counter() - started
        if step.skipped:
            self.skipped.append(len(self.losses))
        self.losses.append(step.loss.item())


class Race:
    """fp32 against mixed precision on one of ``TASKS``, step by step."""

    def __init__(self, task: str, dtype: torch.dtype, device: torch.device | str) -> None:
        """Line both runs up at step 0. Raises ValueError for an unknown task or another dtype."""
        if task not in list(TASKS):
            raise ValueError(f"The task is one of {', '.join(TASKS)}; there is no {task!r}.")
        if dtype not in HALVES.values():
            raise ValueError(f"The dtype is torch.float16 or torch.bfloat16, not {dtype!r}.")
        self.device = torch.device(device)
        self.task = TASKS[task](self.device)
        self.fp32, self.amp = self._runner(None), self._runner(dtype)

    def _runner(self, dtype: torch.dtype | None) -> Runner:
        model = copy.deepcopy(self.task.model).to(self.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=self.task.learning_rate, momentum=0.9)
        steps = training.training_steps(
            model,
            self.task.loader,
            optimizer,
            self.task.loss_fn,
            self.task.epochs,
            device_type=self.device.type,
            dtype=dtype,
        )
        return Runner(precision_name(dtype), self.device, steps)

    @property
    def step(self) -> int:
        """How many steps both runs have made."""
        return len(self.amp.losses)

    @property
    def finished(self) -> bool:
        """Whether both runs are at their end."""
        return self.step == self.task.steps

    @property
    def differences(self) -> list[float]:
        """The relative difference of the two losses at each step: ``training.relative_difference``."""
        return list(map(training.relative_difference, self.fp32.losses, self.amp.losses))

    @property
    def largest_difference(self) -> tuple[float, int]:
        """The largest relative difference between finite losses, and its step (from 0)."""
        finite = [(found, step) for step, found in enumerate(self.differences) if math.isfinite(found)]
        return max(finite, default=(math.inf, 0), key=itemgetter(0))

    def advance(self) -> None:
        """Train both runs one step. Raises ValueError when they are at their end."""
        if self.finished:
            raise ValueError(f"the race has ended after {self.step} steps")
        self.fp32.advance()
        self.amp.advance()
