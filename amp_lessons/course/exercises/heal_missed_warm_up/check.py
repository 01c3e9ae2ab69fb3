"""The loop of lesson 04, in which a schedule and averaged weights go on with each step, and with no other."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.course.exercises import loops
from amp_lessons.course.exercises.heal_missed_warm_up import company_there
from amp_lessons.course.exercises.heal_missed_warm_up.solution import train_missed_warm_up
from amp_lessons.course.exercises.loop_runs import Run
from amp_lessons.course.exercises.report.results import SideBySide

_SIGNATURE = 5, ("scheduler", "average")


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding | SideBySide]:
    """Let the loop train on several problems, and look at what it did beside the optimizer's steps."""
    bench = loops.Bench(
        train_missed_warm_up, there=company_there, signature=_SIGNATURE, mistakes=_with_company
    )
    yield from bench.judge(worker, draw)
    yield passed(
        "company", "schedule and averaged weights went on with each step that was made, and no other"
    )


def _with_company(run: Run) -> list[Finding]:
    if found := loops.mistakes(run):
        return found
    beside = first(_schedule(run)), first(_average(run))
    return [each for each in beside if each is not None]


def _schedule(run: Run) -> Iterator[Finding]:
    advanced, steps = int(run.told["company"]["schedule_steps"]), len(run.calls("stepped"))
    if advanced > steps:
        yield catalogue.scaler.schedule_on_skipped_step(advanced, steps)
    if advanced < steps:
        yield failed(
            "schedule_behind",
            f"the learning rate's schedule was advanced {advanced} times for {steps} steps of the "
            "optimizer: it goes on too slowly",
            "advance it once for every step that was made; one after which the scale grows was made, too",
        )
    for step, count in _out_of_turn(run.told["company"]["schedule"]):
        when = "before the step" if count > step - 1 else "too late"
        yield failed(
            "schedule_out_of_turn",
            f"the learning rate's schedule went on {when}: its place was {count} instead of {step - 1} "
            f"when step {step} of the optimizer was made, which had the rate of another step",
            "advance it after each step that was made, and before the next one",
        )


def _average(run: Run) -> Iterator[Finding]:
    updated, steps = int(run.told["company"]["average_updates"]), len(run.calls("stepped"))
    if updated > steps:
        yield catalogue.scaler.average_on_skipped_step(updated, steps)
    if updated < steps:
        yield failed(
            "average_behind",
            f"the averaged weights were updated {updated} times for {steps} steps of the optimizer: they "
            "miss weights that the model had",
            "update them once for every step that was made; one after which the scale grows was made, too",
        )
    for step, count in _out_of_turn(run.told["company"]["average"]):
        when = "before the step" if count > step - 1 else "too late"
        yield failed(
            "average_out_of_turn",
            f"the averaged weights were updated {when}: their count was {count} instead of {step - 1} when "
            f"step {step} of the optimizer was made, so that they took in the weights of another step",
            "update them after each step that was made, and before the next one",
        )


def _out_of_turn(counts: list[int]) -> Iterator[tuple[int, int]]:
    """Find the steps, from 1, before which something had not gone on once for each step before them."""
    return ((step, count) for step, count in enumerate(counts, start=1) if count != step - 1)
