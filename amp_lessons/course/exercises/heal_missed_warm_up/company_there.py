"""What keeps an optimizer company in the worker: a schedule and averaged weights, which are counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from amp_lessons.course.exercises import loops_there

_DECAY = 0.9
_SOON = 2  # clean steps after which a scaler grows: by default 2,000, which a short run would not show
_PLACE_OF_INTERVAL = 4  # among the arguments of GradScaler


def train(loop: Callable[..., Any], given: loops_there.Given) -> dict[str, Any]:
    """Let the loop train with company; return what was written down, and the counts of both."""
    if given["poisoned"] or given["dtype"] == torch.bfloat16:
        _let_scalers_grow_soon()
    company = _Company(loop)
    told = loops_there.train(company, given)
    return {**told, "company": company.told()}


class _Company:
    """A loop that is called with a schedule and averaged weights of its own.

    The schedule leaves the learning rate as it is: the judge knows gradients by how far the weights moved.
    """

    def __init__(self, loop: Callable[..., Any]) -> None:
        self._loop, self._at_steps = loop, {"schedule": [], "average": []}  # type: ignore[var-annotated]
        self._counts: Callable[[], tuple[int, int]] = lambda: (0, 0)

    def __call__(
        self, model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        """Train as the loop of the exercise on AMP does, which knows of neither."""
        scheduler = LambdaLR(optimizer, lambda step: 1.0)
        for group in optimizer.param_groups:
            del group["initial_lr"]  # what a schedule leaves there is not the learner's doing
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(_DECAY))
        self._counts = lambda: (scheduler.last_epoch, int(average.n_averaged))
        optimizer.register_step_pre_hook(self._stepping)
        with warnings.catch_warnings():
            # PyTorch notices a schedule that goes on before the first step: the finding says it better
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            return self._loop(model, loader, optimizer, *args, scheduler=scheduler, average=average, **kwargs)

    def _stepping(self, *_: Any) -> None:
        for name, count in zip(("schedule", "average"), self._counts(), strict=True):
            self._at_steps[name].append(count)

    def told(self) -> dict[str, Any]:
        """Return how often each has gone on, in the end and when each step was made."""
        counts = self._counts()
        return {**self._at_steps, "schedule_steps": counts[0], "average_updates": counts[1]}


def _let_scalers_grow_soon() -> None:
    original = torch.amp.GradScaler.__init__
    if original.__name__ == "grows_soon":
        return

    def grows_soon(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) <= _PLACE_OF_INTERVAL:
            kwargs.setdefault("growth_interval", _SOON)
        original(self, *args, **kwargs)

    torch.amp.GradScaler.__init__ = grows_soon  # type: ignore[method-assign]
