"""What keeps an optimizer company, and how often it was advanced: a schedule and averaged weights."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from amp_lessons.audit.recorder.replacing import replaced

_DECAY = 0.9


class Company:
    """Calls a loop with a schedule and averaged weights of its own, and counts how often each was advanced.

    The schedule leaves the learning rate as it is: the test bed knows gradients by how far the weights moved.
    """

    def __init__(self, loop: Callable[..., Any]) -> None:
        self.loop = loop
        self.schedule_steps = 0
        self.average_updates = 0

    def __call__(
        self, model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        """Train as the loop of the exercise on AMP does, which knows of neither."""
        scheduler = LambdaLR(optimizer, lambda step: 1.0)
        for group in optimizer.param_groups:
            del group["initial_lr"]  # what a schedule leaves there is not the learner's doing
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(_DECAY))
        try:
            with warnings.catch_warnings():
                # PyTorch notices a schedule that goes on before the first step: the finding says it better
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                return self.loop(
                    model, loader, optimizer, *args, scheduler=scheduler, average=average, **kwargs
                )
        finally:
            self.schedule_steps = scheduler.last_epoch
            self.average_updates = int(average.n_averaged)


@contextmanager
def growing_after(steps: int) -> Iterator[None]:
    """Let every scaler made inside grow after so few clean steps, unless it is told otherwise.

    By default it grows after 2,000, and a short run would not show that growing was taken for a skipped step.
    """
    with replaced(torch.amp.GradScaler, "__init__", lambda original: _growing(original, steps)):
        yield


_PLACE_OF_INTERVAL = 4  # among the arguments of GradScaler


def _growing(original: Callable[..., None], steps: int) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if len(args) <= _PLACE_OF_INTERVAL:
            kwargs.setdefault("growth_interval", steps)
        original(self, *args, **kwargs)

    return __init__
