"""What keeps an optimizer company in the worker: a schedule and averaged weights, which are counted."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from amp_lessons.course.exercises import loops_there

_DECAY = 0.9
_SOON = 2  # clean steps after which a scaler grows: by default 2,000, which a short run would not show
_PLACE_OF_INTERVAL = 4  # among the arguments of GradScaler


def train(loop: Callable[..., Any], given: loops_there.Given) -> dict[str, Any]:
    """Let the loop train with company; return what was written down, and how far each was at every step.

    The last two numbers of each are how far it was in the end, and how far hooks take it that were left on
    the optimizer. The schedule leaves the learning rate as it is: the judge knows gradients by how far the
    weights moved.
    """
    soon = given["poisoned"] or given["dtype"] == torch.bfloat16
    company: dict[str, list[int]] = {"schedule": [], "average": []}

    def with_company(model: Any, loader: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        scheduler = LambdaLR(optimizer, lambda step: 1.0)
        for group in optimizer.param_groups:
            del group["initial_lr"]  # what a schedule leaves there is not the learner's doing
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(_DECAY))

        def note(*_: Any) -> None:
            company["schedule"].append(scheduler.last_epoch)
            company["average"].append(int(average.n_averaged))

        noted = optimizer.register_step_pre_hook(note)
        with warnings.catch_warnings():
            # PyTorch notices a schedule that goes on before the first step: the finding says it better
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
            try:
                return loop(model, loader, optimizer, *args, scheduler=scheduler, average=average, **kwargs)
            finally:
                noted.remove()
                note()
                hooks = {**optimizer._optimizer_step_pre_hooks, **optimizer._optimizer_step_post_hooks}
                for hook in hooks.values():
                    with contextlib.suppress(Exception):
                        hook(optimizer, (), {})
                note()

    with _growing_soon() if soon else contextlib.nullcontext():
        told = loops_there.train(with_company, given)
    return {**told, "company": company}


def _growing_soon() -> contextlib.AbstractContextManager[Any]:
    """Let scalers that are made meanwhile grow soon, unless they are told when."""
    original = torch.amp.GradScaler.__init__

    def grows_soon(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) <= _PLACE_OF_INTERVAL:
            kwargs.setdefault("growth_interval", _SOON)
        original(self, *args, **kwargs)

    return mock.patch.object(torch.amp.GradScaler, "__init__", grows_soon)
