"""Rules on gradients between backward and step: added up, unscaled, clipped, applied."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.judging.rule import Memory, Verdict, likely, on, seen
from amp_lessons.audit.recorder import events

_CLEARLY_SCALED = 64.0  # a penalty that many times too large
_NO_LIMIT = 1e6  # a max_norm that is only there for the norm that clipping returns


@on(events.GradientsMixed)
def mixed(event: events.GradientsMixed, memory: Memory) -> Iterator[Verdict]:
    """Report gradients added to some that are of another scale."""
    if event.scales:
        if len(set(event.scales)) > 1:
            yield seen(catalogue.scaler.two_scalers(event.scales))
    elif not event.applied:
        yield seen(catalogue.scaler.update_every_batch())


def added_to_applied(memory: Memory) -> Iterator[tuple[events.Event, Verdict]]:
    """Say, at the end, of gradients added to some that a step had applied, where they were to be cleared.

    Where they are cleared now and then, a step belongs only there.
    """
    now_and_then = any(each.cleared for each in memory.mixed)
    for each in memory.mixed:
        if now_and_then:
            yield each, seen(catalogue.steps.no_zero_grad(now_and_then=True), each.used_at)
        else:
            yield each, seen(catalogue.steps.no_zero_grad())


@on(events.StepAsked)
def window_added_up(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Remark on means that were added up for two steps, where perhaps their mean was meant."""
    if event.means_added_up and memory.windows[event.optimizer]:
        yield seen(catalogue.steps.window_added_up(event.means_added_up), event.means_made_at)


@on(events.MadeFinite)
def made_finite(event: events.MadeFinite, memory: Memory) -> Iterator[Verdict]:
    """Report inf and NaN taken out of gradients that a scaler was still to see."""
    if event.broken:
        yield seen(catalogue.scaler.overflow_hidden())
    else:
        why = "nan_to_num was called on gradients that the scaler has not checked; none need have been inf"
        yield likely(catalogue.scaler.overflow_hidden(), why)


@on(events.ScaledPenalty)
def penalty_while_scaled(event: events.ScaledPenalty, memory: Memory) -> Iterator[Verdict]:
    """Report a penalty on gradients that were multiplied by the scale."""
    counts = f"far too much, at a scale of {event.scale:g}" if event.scale else "far too much"
    if event.scale is None or event.scale >= _CLEARLY_SCALED:
        yield seen(catalogue.steps.penalty_on_scaled_gradients(counts))


@on(events.Clipped)
def clipped_while_scaled(event: events.Clipped, memory: Memory) -> Iterator[Verdict]:
    """Report gradients clipped while they were multiplied by the scale."""
    if event.scaled and event.limit > _NO_LIMIT:
        why = f"clip_grad_norm_ was called with max_norm={event.limit:g}, which clips nothing"
        yield likely(catalogue.scaler.logs_scaled("the gradient norm that it returns"), why)
    elif event.scaled and not _meant_for_scaled(event):
        how = "value by value" if event.by_value else "by their norm"
        threshold = "the threshold" if math.isnan(event.limit) else f"the threshold {event.limit:g}"
        yield seen(
            catalogue.steps.clip_before_unscale(
                f"{how} before scaler.unscale_(optimizer), while they were still multiplied by the scale",
                f"{threshold} acted on values that much larger, so far too much was clipped",
            )
        )


def _meant_for_scaled(event: events.Clipped) -> bool:
    """Whether a threshold was multiplied by the scale, as is right for gradients that are scaled."""
    return event.limit > (100.0 if event.scale is None else math.sqrt(event.scale))


@on(events.Clipped)
def clipped_too_late(event: events.Clipped, memory: Memory) -> Iterator[Verdict]:
    """Report gradients clipped that a step had applied."""
    if event.after_step and event.limit <= _NO_LIMIT:
        yield seen(catalogue.steps.clip_after_step("them as they were"))


@on(events.Unscaled)
def changed_while_scaled(event: events.Unscaled, memory: Memory) -> Iterator[Verdict]:
    """Report gradients that something other than clipping changed while they were scaled."""
    between_ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
    if event.change == "made finite":
        yield seen(catalogue.scaler.overflow_hidden(), memory.made_finite)
    elif event.change == "other" and not event.clipped and not between_ranks:
        yield seen(catalogue.steps.gradients_changed_before_unscale("many times"))


@on(events.Unscaled)
def unscaled_already(event: events.Unscaled, memory: Memory) -> Iterator[Verdict]:
    """Report gradients about to be divided by a scale that somebody has divided out by hand."""
    if event.change == "undone":
        yield seen(catalogue.steps.unscaled_twice(None), event.undone_at)


@on(events.StepAsked)
def unscaled_once_more(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report gradients that were divided by the scale by hand after the scaler had done so."""
    if event.change == "undone" and event.scaler is not None:
        yield seen(catalogue.steps.unscaled_twice(None), event.undone_at)


@on(events.Unscaled)
def unscaled_by_a_later_scale(event: events.Unscaled, memory: Memory) -> Iterator[Verdict]:
    """Report gradients about to be divided by another scale than they were multiplied by."""
    if event.outdated:
        yield seen(
            catalogue.scaler.update_between_steps(
                "gradients are divided by another scale than they were multiplied by whenever it moves",
                "call scaler.update() once, after the last scaler.step of the iteration",
            )
        )


@on(events.StepAsked)
def applied_while_scaled(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report an optimizer that applies gradients still multiplied by the scale."""
    if event.scaled_by is not None and event.scaler is None and not event.by_closure:
        yield seen(catalogue.steps.optimizer_step_direct(event.scale))


@on(events.StepAsked)
def applied_overflow(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report inf or NaN applied, where fp16 was used and a scaler would have skipped the step."""
    if not event.overflowed or event.scaler is not None:
        return
    if memory.enabled_scalers:
        yield seen(catalogue.scaler.step_bypasses_scaler("optimizer.step() was called directly"))
    elif memory.in_fp16:
        yield seen(catalogue.scaler.overflow_not_skipped("optimizer.step() was called in spite of it"))


@on(events.OverflowPassed)
def overflow_passed(event: events.OverflowPassed, memory: Memory) -> Iterator[Verdict]:
    """Suspect that something takes inf and NaN out of gradients."""
    why = "inf or NaN was seen on its way back, and the scaler found none in the parameters' gradients"
    yield likely(catalogue.scaler.overflow_hidden(), why, memory.made_finite)


@on(events.StepAsked)
def past_the_scaler(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Suspect a step that nothing will skip, before one has applied an overflow."""
    if event.overflowed:
        return
    if event.scaler is None and event.unscaled and event.fresh and event.scaled_by is None:
        yield likely(
            catalogue.scaler.step_bypasses_scaler(
                "scaler.unscale_ was called, and then optimizer.step() directly"
            ),
            "the scaler's check was passed by; no gradient needs to have overflowed yet",
        )


@on(events.StepAsked)
def cleared_before_step(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report a step whose gradients were set to zero after backward."""
    if event.waiting or event.by_closure:
        return
    if event.cleared:
        yield seen(catalogue.steps.gradients_cleared(), event.cleared_at)
    elif event.spent:
        yield seen(catalogue.steps.step_without_backward())


@on(events.Backward)
def backward_again(event: events.Backward, memory: Memory) -> Iterator[Verdict]:
    """Report a second backward pass through one loss."""
    if event.again:
        yield seen(catalogue.steps.backward_twice())


@on(events.StepAsked)
def stepped_again(event: events.StepAsked, memory: Memory) -> Iterator[Verdict]:
    """Report a step on gradients that a step had applied."""
    if event.fresh or not event.waiting or event.by_closure:
        return
    memory.doubled[event.optimizer] += 1
    every_time = memory.doubled[event.optimizer] * 2 >= memory.steps_of[event.optimizer]
    yield seen(catalogue.steps.double_step() if every_time else catalogue.steps.step_without_backward())


@on(events.ClosureGiven)
def closure(event: events.ClosureGiven, memory: Memory) -> Iterator[Verdict]:
    """Report a closure given to a scaler."""
    yield seen(catalogue.scaler.closure(event.wants))
