"""Rules on what goes on beside the steps: schedules, averages, checkpoints, and sums in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons._base.text.words import counted
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding
from amp_lessons.audit.judging.rule import Memory, Verdict, likely, on, seen
from amp_lessons.audit.recorder import events
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

_HALVES = frozenset(HALVES.values())


@on(events.ScheduleStepped)
def schedule_without_step(event: events.ScheduleStepped, memory: Memory) -> Iterator[Verdict]:
    """Report a schedule that goes on with every step of its optimizer, and did so when one was skipped."""
    optimizer = memory.known(event.optimizer)
    one_step = memory.steps_of[optimizer] - memory.steps_at_last_schedule[event.schedule] == 1
    if one_step and _just_skipped(optimizer, memory):
        advanced = memory.advanced[event.schedule] + 1
        yield seen(catalogue.scaler.schedule_on_skipped_step(advanced, memory.made_of[optimizer]))


@on(events.Averaged)
def average_without_step(event: events.Averaged, memory: Memory) -> Iterator[Verdict]:
    """Report an average that took in weights which no step had changed: once a step, not once a tensor."""
    optimizer, advanced = memory.known(event.optimizer), _times_averaged(event, memory)
    first = event.step not in memory.averaged_at[optimizer]
    if first and _just_skipped(optimizer, memory) and not _too_early(event, advanced):
        finding = catalogue.scaler.average_on_skipped_step(advanced, memory.made_of[optimizer])
        yield likely(finding, _by_numbers(advanced)) if event.resembles else seen(finding)


def _times_averaged(average: events.Averaged, memory: Memory) -> int:
    """Count the steps in which averages took in the weights of the same optimizer, this one among them."""
    return len(memory.averaged_at[memory.known(average.optimizer)] | {average.step})


def _too_early(average: events.Averaged, advanced: int) -> bool:
    """Whether what only resembles an average has done so in a single step."""
    return average.resembles and advanced < 2


def _by_numbers(steps: int) -> str:
    return f"in {steps} steps its numbers took in a part of the weights, which may be something else"


def _just_skipped(optimizer: int | None, memory: Memory) -> bool:
    return optimizer in memory.done_of and not memory.done_of[optimizer].happened


@on(events.Averaged)
def average_in_half(event: events.Averaged, memory: Memory) -> Iterator[Verdict]:
    """Report an average that is kept in 16 bits."""
    advanced = _times_averaged(event, memory)
    if event.dtype in _HALVES and not _too_early(event, advanced):
        half = dtype_name(event.dtype)
        finding = catalogue.precision.average_stuck(
            f"a moving average of the weights is kept in {half}", half
        )
        moved = "its numbers still moved" if event.stuck is False else "whether it still moves was not seen"
        doubts = [_by_numbers(advanced)] if event.resembles else []
        doubts += [] if event.stuck else [f"by its dtype; {moved}"]
        yield likely(finding, "; ".join(doubts)) if doubts else seen(finding)


@on(events.Arithmetic)
def arithmetic(event: events.Arithmetic, memory: Memory) -> Iterator[Verdict]:
    """Report what was computed in 16 bits and does not fit."""
    facts, half = event.facts, dtype_name(event.dtype)
    if event.code == "positions_rounded":
        seen_of = f"{facts['count']:g} whole numbers became {facts['distinct']:g} in {half}"
        yield seen(
            catalogue.precision.positions_rounded(seen_of, f"odd numbers above {_counted_to(event.dtype):g}")
        )
    elif event.code == "metric_stops":
        stopped = f"a sum has come to {facts['total']:g}, and adding {facts['term']:g} leaves it there"
        yield seen(catalogue.precision.metric_stops(stopped, half, _counted_to(event.dtype)))
    elif event.code == "metric_rounded":
        come_to = f"a sum in {half} has come to {facts['total']:g}, and its terms to {facts['exact']:g}"
        how = f"each time a term is added, the sum is rounded to the nearest number in {half}"
        yield seen(catalogue.precision.metric_rounded(come_to, how))
    elif event.code == "eps_vanishes":
        yield likely(_eps_vanishes(facts["constant"], event.dtype), "what it protects may never come near 0")
    elif event.code == "masked_row_nan":
        chosen = f"{facts['constant']:.3g} was put into {half} numbers"
        how = f"it is beyond {half}, where it becomes -inf, and softmax of nothing else is NaN"
        yield likely(
            catalogue.precision.masked_row_nan(chosen, how), "a row without a single open place would show it"
        )


def _counted_to(dtype: torch.dtype) -> float:
    """Return up to where a format has all whole numbers."""
    return 2 / torch.finfo(dtype).eps


def _eps_vanishes(eps: float, dtype: torch.dtype) -> Finding:
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    how = f"it is rounded to 0 in {dtype_name(dtype)}, whose smallest number is {smallest:.1g}"
    return catalogue.precision.eps_vanishes(f"{eps:g} is to protect from 0", how)


@on(events.ScaledRead)
def reads_scaled(event: events.ScaledRead, memory: Memory) -> Iterator[Verdict]:
    """Report a scaled number read, to be logged most likely."""
    yield seen(catalogue.scaler.logs_scaled(event.what))


@on(events.StepAsked)
def eps_vanishes(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report an optimizer whose eps is 0 in the dtype of its weights."""
    if event.eps_vanishes is not None:
        yield seen(_eps_vanishes(*event.eps_vanishes))


@on(events.BuffersBroken)
def buffers_not_finite(event: events.BuffersBroken, memory: Memory) -> Iterator[Verdict]:
    """Report buffers into which a forward pass has written inf or NaN."""
    first, *others = event.names
    which = f"`{first}` and {counted(len(others), 'other buffer')} are" if others else f"`{first}` is"
    after = ", since a step that was skipped" if event.skipped else ""
    yield seen(catalogue.precision.buffers_not_finite(f"{which} inf or NaN{after}", event.statistics))


def no_step(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Suspect, at the end, an optimizer whose gradients were cleared again and again, and never applied."""
    for optimizer, dropped in memory.dropped.items():
        by_hand = any(each.moved for each in dropped)
        if len(dropped) > 1 and optimizer not in memory.steps_of and not by_hand:
            why = f"they were cleared {len(dropped)} times, and the optimizer has never stepped"
            yield dropped[0], likely(catalogue.steps.no_step(), why)


def scaler_not_saved(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """See, at the end, that optimizers were saved and no scaler ever was."""
    with_optimizer = [saved for saved in memory.saved if saved.optimizer]
    if with_optimizer and memory.scaler_of and not any(saved.scaler for saved in memory.saved):
        first = with_optimizer[0]
        since = sum(step >= first.step for step in memory.skipped)
        yield first, seen(catalogue.scaler.scaler_not_saved(memory.steps_skipped - since, since))
