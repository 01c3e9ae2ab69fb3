"""The loop of lesson 04, in which a schedule and averaged weights go on with each step, and with no other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.audit.recorder.replacing import replaced
from amp_lessons.exercises.attempt import Attempt, Rejected
from amp_lessons.exercises.heal_missed_warm_up.solution import train_missed_warm_up
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.mistakes import exceptions
from amp_lessons.exercises.training_loops.testbed import Problem, run_loop

_OVERFLOWING = Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3)))
_BFLOAT16 = Problem(seed=2, dtype=torch.bfloat16)
_SOON = 2  # clean steps after which a scaler grows


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems, then look at what it did beside the optimizer's steps."""
    options = dict.fromkeys(("scheduler", "average", "device_type", "dtype"))
    loop = attempt.function(*[None] * 5, **options).function
    alone = replace(attempt, value=Company(loop))
    yield from examine.examine(alone, Company(train_missed_warm_up))
    for problem in (_OVERFLOWING, _BFLOAT16):
        company = Company(loop)
        with growing_after(_SOON):
            run = run_loop(company, problem)
        if run.outcome.error is not None:
            raise Rejected(exceptions.explained(run))
        steps = len(run.calls("stepped"))
        mistakes = (*_schedule(company, steps), *_average(company, steps))
        if mistakes:
            raise Rejected(*mistakes)
    yield passed(
        "company", "schedule and averaged weights went on with each step that was made, and no other"
    )


def _schedule(company: Company, steps: int) -> Iterator[Finding]:
    if company.schedule_steps > steps:
        yield catalogue.scaler.schedule_on_skipped_step(company.schedule_steps, steps)
    if company.schedule_steps < steps:
        yield failed(
            "schedule_behind",
            f"the learning rate's schedule was advanced {company.schedule_steps} times for {steps} steps "
            "of the optimizer: it goes on too slowly",
            "advance it once for every step that was made; one after which the scale grows was made, too",
        )
    for step, advanced in _out_of_turn(company.schedule_at_steps):
        when = "before the step" if advanced > step - 1 else "too late"
        yield failed(
            "schedule_out_of_turn",
            f"the learning rate's schedule went on {when}: its place was {advanced} instead of {step - 1} "
            f"when step {step} of the optimizer was made, which had the rate of another step",
            "advance it after each step that was made, and before the next one",
        )


def _average(company: Company, steps: int) -> Iterator[Finding]:
    if company.average_updates > steps:
        yield catalogue.scaler.average_on_skipped_step(company.average_updates, steps)
    if company.average_updates < steps:
        yield failed(
            "average_behind",
            f"the averaged weights were updated {company.average_updates} times for {steps} steps of the "
            "optimizer: they miss weights that the model had",
            "update them once for every step that was made; one after which the scale grows was made, too",
        )
    for step, updated in _out_of_turn(company.average_at_steps):
        when = "before the step" if updated > step - 1 else "too late"
        yield failed(
            "average_out_of_turn",
            f"the averaged weights were updated {when}: their count was {updated} instead of {step - 1} when "
            f"step {step} of the optimizer was made, so that they took in the weights of another step",
            "update them after each step that was made, and before the next one",
        )


def _out_of_turn(counts: list[int]) -> Iterator[tuple[int, int]]:
    """Find the steps, from 1, before which something had not gone on once for each step before them."""
    return ((step, count) for step, count in enumerate(counts, start=1) if count != step - 1)


# --- what keeps an optimizer company, and how often it was advanced until when: a schedule, averaged weights

_DECAY = 0.9


class Company:
    """Calls a loop with a schedule and averaged weights of its own, and counts how often each was advanced.

    ``schedule_at_steps`` and ``average_at_steps`` hold the counts at each step that the optimizer made.

    The schedule leaves the learning rate as it is: the test bed knows gradients by how far the weights moved.
    """

    def __init__(self, loop: Callable[..., Any]) -> None:
        self.loop = loop
        self.schedule_steps = 0
        self.average_updates = 0
        self.schedule_at_steps: list[int] = []
        self.average_at_steps: list[int] = []

    def __call__(
        self, model: nn.Module, loader: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any
    ) -> Any:
        """Train as the loop of the exercise on AMP does, which knows of neither."""
        scheduler = LambdaLR(optimizer, lambda step: 1.0)
        for group in optimizer.param_groups:
            del group["initial_lr"]  # what a schedule leaves there is not the learner's doing
        average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(_DECAY))
        self.schedule_at_steps, self.average_at_steps = [], []
        counting = optimizer.register_step_pre_hook(lambda *_: self._count(scheduler, average))
        try:
            with warnings.catch_warnings():
                # PyTorch notices a schedule that goes on before the first step: the finding says it better
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                return self.loop(
                    model, loader, optimizer, *args, scheduler=scheduler, average=average, **kwargs
                )
        finally:
            counting.remove()
            self.schedule_steps = scheduler.last_epoch
            self.average_updates = int(average.n_averaged)

    def _count(self, scheduler: LambdaLR, average: AveragedModel) -> None:
        self.schedule_at_steps.append(scheduler.last_epoch)
        self.average_at_steps.append(int(average.n_averaged))


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
