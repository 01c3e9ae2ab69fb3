"""The loop of lesson 04, in which a schedule and averaged weights go on with each step, and with no other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.exercises.attempt import Attempt, Rejected
from amp_lessons.exercises.heal_missed_warm_up.company import Company, growing_after
from amp_lessons.exercises.heal_missed_warm_up.solution import train_missed_warm_up
from amp_lessons.exercises.report.results import SideBySide
from amp_lessons.exercises.training_loops import examine
from amp_lessons.exercises.training_loops.mistakes import exceptions
from amp_lessons.exercises.training_loops.testbed import Problem, run_loop

_OVERFLOWING = Problem(seed=3, dtype=torch.float16, loss_weight=2.0**-2, poisoned=((1, 1e6), (3, 8e3)))
_BFLOAT16 = Problem(seed=2, dtype=torch.bfloat16)
_SOON = 2  # clean steps after which a scaler grows


def check(attempt: Attempt) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems, then count what it did beside the optimizer's steps."""
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
