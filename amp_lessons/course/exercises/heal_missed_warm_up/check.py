"""The loop of lesson 04, in which a schedule and averaged weights go on with each step, and with no other."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.course.exercises import bed, loops
from amp_lessons.course.exercises.heal_missed_warm_up import company_there
from amp_lessons.course.exercises.heal_missed_warm_up.solution import train_missed_warm_up
from amp_lessons.course.exercises.loop_runs import Run

_SIGNATURE = 5, ("scheduler", "average")
# what each is called, the code of its going on at another time than it should, and what is said of its going
# on without a step
_COMPANY = {
    "schedule": (
        "the learning rate's schedule",
        "schedule_out_of_turn",
        rules.beside.schedule_on_skipped_step,
    ),
    "average": (
        "the count of the averaged weights",
        "average_out_of_turn",
        rules.beside.average_on_skipped_step,
    ),
}


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[bed.Said]:
    """Let the loop train on several problems, and look at what it did beside the optimizer's steps."""
    bench = loops.Bench(
        train_missed_warm_up, there=company_there, signature=_SIGNATURE, mistakes=_with_company
    )
    yield from bench.judge(worker, draw)
    said = "schedule and averaged weights went on with each step that was made, and no other"
    yield passed("company", said)


def _with_company(run: Run) -> list[Finding]:
    found = [each for name in _COMPANY if (each := first(_beside(run, name))) is not None]
    return loops.mistakes(run) or found


def _beside(run: Run, name: str) -> Iterator[Finding]:
    """Hold how far one of the two was when each step was made, and in the end, against the steps."""
    *at_steps, times, beyond = map(int, run.told["company"][name])
    what, out_of_turn, too_often = _COMPANY[name]
    steps = len(run.calls("stepped"))
    if steps < times <= len(run.seen):  # batches without a step explain as much
        yield too_often(times, steps)
    hint = "let it go on once after every step that was made, before the next one, and at no other time"
    if times != steps:
        missed = next((step for step, count in enumerate([*at_steps, times]) if count < step), None)
        said = f"{what} went on {times} times for {steps} steps of the optimizer"
        said += f": not after step {missed}" if missed else ""
        yield failed(out_of_turn, said, hint)
    if beyond != times:
        said = f"{what} went on with a step of the optimizer after your function had returned"
        hint = "what is registered on the optimizer outlives the call: remove it at the end"
        yield failed(out_of_turn, said, hint)
    for made, count in enumerate(at_steps):
        if count != made:
            said = f"{what} was at {count} instead of {made} when step {made + 1} of the optimizer was made"
            yield failed(out_of_turn, said, hint)
