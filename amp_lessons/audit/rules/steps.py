"""Mistakes from the gradients to the step: cleared, unscaled, clipped, applied, and how often."""

from __future__ import annotations

import math
from collections import Counter

from amp_lessons.audit.recorder import events
from amp_lessons.audit.rules.beside import NO_LIMIT
from amp_lessons.audit.rules.past import Past
from amp_lessons.audit.rules.rows import Worded, mistake, remark
from amp_lessons.audit.rules.rule import AtTheEnd, Rule, Verdicts, likely, on, seen

_CLEARLY_SCALED = 64.0  # a penalty that many times too large
_MOST_KEPT = 10_000  # gradients that were mixed


@mistake("gradients of an earlier step were still there", section="accumulate")
def no_zero_grad(
    gradients: str = "the gradients", optimizer: str = "optimizer", now_and_then: bool = False
) -> Worded:
    """Report that backward added to the ``gradients`` (whose) of an earlier step.

    ``now_and_then`` says that they are cleared, but not once for every step.
    """
    if now_and_then:
        return (
            f"{gradients} still contained those of an earlier step: they were cleared only now and then, "
            "several steps apart, so that each step applied those before it once more",
            f"step only where {optimizer}.zero_grad() follows before the next backward pass: once per window "
            "of batches that are added up",
        )
    return (
        f"{gradients} still contained those of an earlier step: they were not set to zero in between, and "
        "backward added to them",
        f"call {optimizer}.zero_grad() once per update, before the forward pass or after the step, made or "
        "skipped",
    )


class _AddedToApplied(Rule):
    """Where applied gradients are cleared now and then, a step belongs only there."""

    def __init__(self) -> None:
        self.mixed: list[events.GradientsMixed] = []  # the first of them

    @on(events.GradientsMixed)
    def mix(self, event: events.GradientsMixed, past: Past) -> None:
        if event.added.applied and len(self.mixed) < _MOST_KEPT:
            self.mixed.append(event)

    @on(AtTheEnd)
    def not_cleared(self, past: Past) -> Verdicts:
        now_and_then = any(each.cleared for each in self.mixed)
        finding = no_zero_grad(now_and_then=now_and_then)
        for each in self.mixed:
            yield seen(finding, each.added.applied_at if now_and_then else None, about=each)


@mistake("gradients were set to zero before the step could apply them", costs="stops", section="accumulate")
def gradients_cleared(optimizer: str = "optimizer") -> Worded:
    return (
        f"the gradients were cleared, as zero_grad() does, between backward and the {optimizer} step, which "
        "had none left to apply",
        f"call {optimizer}.zero_grad() before the forward pass, or after the step",
    )


@on(events.StepAsked, last=True)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    if event.cleared and not event.waiting and not event.by_closure:
        yield seen(gradients_cleared(), event.cleared_at)


@mistake("the optimizer applied gradients that were still scaled", section="scaler")
def optimizer_step_direct(
    scale: float | None, gradients: str = "the gradients", optimizer: str = "optimizer"
) -> Worded:
    """Report that an optimizer applied ``gradients`` (whose) still multiplied by ``scale``, where known."""
    times = f" {scale:g} times" if scale is not None else ""
    return (
        f"{optimizer}.step() was called directly: it applied {gradients} while they were still{times} too "
        "large (the loss scale), and nothing checked them for inf",
        f"call scaler.step({optimizer}) instead: it unscales, checks for inf and only then steps",
    )


@on(events.StepAsked)
def _(event: events.StepAsked, past: Past) -> Verdicts:
    if event.scaled_by is not None and event.scaler is None and not event.by_closure:
        yield seen(optimizer_step_direct(event.scale))


@remark("a window's losses, each a mean, were added up", lesson="04", only_audit=True, section="accumulate")
def window_added_up(passes: int) -> Worded:
    return (
        f"{passes} losses went backward for each step, each the mean of its own batch, and none was divided: "
        f"the gradients are their sum, {passes} times as large as those of the mean of all",
        f"where the mean is meant, divide each loss by {passes} before it goes backward",
    )


class _Windows(Rule):
    def __init__(self) -> None:
        self.added_up: Counter[int] = Counter()  # steps of an optimizer on a sum of means

    @on(events.StepAsked)
    def step(self, event: events.StepAsked, past: Past) -> Verdicts:
        if event.means_added_up and self.added_up[event.optimizer]:  # once their sum may be meant
            yield seen(window_added_up(event.means_added_up), event.means_made_at)
        self.added_up[event.optimizer] += bool(event.means_added_up)


@mistake("there were two steps where one belongs")
def double_step(
    step: str = "the optimizer stepped",
    how: str = "",
    hint: str = "one scaler.step(optimizer) per iteration: it calls optimizer.step() itself",
) -> Worded:
    """Report two steps where one belongs; ``step`` is what was done twice."""
    return (f"{step} twice in one iteration{f': {how}' if how else ''}", hint)


@mistake("no step followed the backward pass", costs="stops")
def no_step() -> Worded:
    return (
        "gradients were computed but no step followed: the weights did not change",
        "call scaler.step(optimizer) after backward",
    )


class _NeverStepped(Rule):
    def __init__(self) -> None:
        self.dropped: dict[int, list[events.Dropped]] = {}  # of each optimizer

    @on(events.Dropped)
    def clear(self, event: events.Dropped, past: Past) -> None:
        self.dropped.setdefault(event.optimizer, []).append(event)

    @on(AtTheEnd)
    def never(self, past: Past) -> Verdicts:
        for optimizer, dropped in self.dropped.items():
            by_hand = any(each.moved for each in dropped)
            if len(dropped) > 1 and optimizer not in past.steps.asked and not by_hand:
                why = f"they were cleared {len(dropped)} times, and the optimizer has never stepped"
                yield likely(no_step(), why, about=dropped[0])


@mistake("a step was made for which no gradients were left")
def step_without_backward(step: str = "scaler.step(optimizer)", left_out: bool = False) -> Worded:
    """Report a ``step`` that found no gradient: it had been made, or the backward pass was ``left_out``."""
    if left_out:
        return (
            f"{step} was called although the loss was not finite and its backward pass had been left out: "
            "there was no gradient to step with",
            "call backward whatever the loss: scaler.step leaves out the step, and scaler.update lowers the "
            "scale",
        )
    return (
        f"{step} was called once more after the step that had applied the gradients, with no backward pass "
        "in between: with momentum or weight decay the weights would move all the same",
        "step once for the gradients that were added up; a step at the end of an epoch belongs only where "
        "gradients are still waiting",
    )


class _SteppedAgain(Rule):
    """A step on gradients that a step had applied: two steps each time, or now and then one too many."""

    def __init__(self) -> None:
        self.doubled: Counter[int] = Counter()

    @on(events.StepAsked, last=True)
    def step(self, event: events.StepAsked, past: Past) -> Verdicts:
        if event.by_closure:
            return
        if event.waiting and not event.fresh:
            self.doubled[event.optimizer] += 1
            every_time = self.doubled[event.optimizer] * 2 >= past.steps.asked[event.optimizer]
            yield seen(double_step() if every_time else step_without_backward())
        elif event.spent and not event.waiting and not event.cleared:
            yield seen(step_without_backward())


@mistake(
    "gradients were changed between backward and the step",
    unseen="gradients may be changed once they are unscaled",
    section="clip",
)
def gradients_changed(
    whose: str,
    optimizer: str = "optimizer",
    how: str = ", which this exercise does not ask for",
    hint: str = "apply the gradients as they are",
) -> Worded:
    return (f"{whose} were changed between backward and the {optimizer} step{how}", hint)


@mistake("the step came before the backward pass", costs="stops")
def step_before_backward(backward: str = "backward had produced any gradient") -> Worded:
    """Report a step that came before ``backward``."""
    return (
        f"scaler.step(optimizer) was called before {backward}",
        "call backward first: the step applies the gradients that it leaves in .grad",
    )


@mistake("the gradients were divided by the loss scale twice", section="clip")
def unscaled_twice() -> Worded:
    return (
        "the update is too small, by the loss scale: the gradients were divided by the loss scale twice",
        "leave the division to the scaler: its step makes it, or, where gradients are clipped, its unscale_ "
        "just before that",
    )


@on(events.Unscaled)
@on(events.StepAsked)
def _(event: events.Unscaled | events.StepAsked, past: Past) -> Verdicts:
    if event.change == "undone" and event.scaler is not None:
        yield seen(unscaled_twice(), event.undone_at)


@mistake("something other than the optimizer changed the weights", unseen="weights may be decayed or clamped")
def weights_changed(although: str) -> Worded:
    return (
        f"{although}, but the weights changed otherwise as well: something other than the optimizer writes "
        "to the parameters, or the learning rate was changed for a while",
        "leave the weights and the optimizer's settings to the optimizer",
    )


@mistake("an update is wrong, and no known mistake explains it", unseen="any loss is somebody's")
def wrong_update(update: str, how_far: str, hint: str) -> Worded:
    return (f"{update} is not plain SGD on the gradient of its loss: {how_far}", hint)


@mistake("gradients were clipped while they were still scaled", section="clip")
def clip_before_unscale(how: str = "", threshold: str = "a threshold for true gradients") -> Worded:
    return (
        f"the gradients were clipped {how}before scaler.unscale_(optimizer), while they were still "
        f"multiplied by the scale: {threshold} acted on values that much larger, so it clips what is far "
        "below it",
        "call scaler.unscale_(optimizer) before you clip: max_norm is meant for gradients of their true size",
    )


@on(events.Clipped)
def _(event: events.Clipped, past: Past) -> Verdicts:
    scale, limit = event.scale, event.limit
    if not event.scaled or scale is None or scale == 1.0 or limit > NO_LIMIT:
        return
    # a threshold may have been multiplied by the scale, as is right for gradients that are scaled
    if limit < math.sqrt(scale) and _count_digits(limit / scale) > _count_digits(limit):
        how = "value by value " if event.by_value else "by their norm "
        yield seen(clip_before_unscale(how, f"the threshold {event.limit:g}"))


def _count_digits(number: float) -> int:
    """Count a number's significant digits: who multiplies by a scale, a power of two, makes them more."""
    return len(f"{number:.12e}".partition("e")[0].rstrip("0").replace(".", ""))


@mistake("gradients were clipped after the step", section="clip")
def clip_after_step() -> Worded:
    return (
        "the gradients were clipped after the step, which had already applied them as they were",
        "clip between scaler.unscale_(optimizer) and scaler.step(optimizer)",
    )


@on(events.Clipped)
def _(event: events.Clipped, past: Past) -> Verdicts:
    if event.after_step and event.limit <= NO_LIMIT:
        yield seen(clip_after_step())


@mistake("gradients were changed while they were still scaled", section="clip")
def gradients_changed_before_unscale(larger: str) -> Worded:
    """Report gradients changed while they were scaled; ``larger`` says how much larger they were."""
    return (
        "the gradients were changed (clipped, decayed, replaced) while they were still multiplied by "
        f"the loss scale, where a threshold meant for true gradients acts on values {larger} larger",
        "call scaler.unscale_(optimizer) before you change the gradients",
    )


@on(events.Unscaled)
def _(event: events.Unscaled, past: Past) -> Verdicts:
    import torch.distributed as dist  # only where there is a training

    between_ranks = dist.is_available() and dist.is_initialized()
    if event.change == "other" and not event.clipped and not between_ranks:
        yield seen(gradients_changed_before_unscale("many times"))


@mistake("scaler.unscale_ was called twice in one iteration", costs="stops", section="clip")
def unscale_twice() -> Worded:
    return (
        "scaler.unscale_(optimizer) was called twice in one iteration: the second would divide the "
        "gradients by the scale again, so PyTorch refuses",
        "call scaler.unscale_(optimizer) once, after backward and before clipping; scaler.step will "
        "not repeat it",
    )


@mistake("scaler.unscale_ was called before there were gradients", costs="stops", section="clip")
def unscale_without_gradients(
    why: str = "backward, which puts them there, had not run yet",
    hint: str = "call scaler.unscale_(optimizer) after backward",
) -> Worded:
    return (
        "scaler.unscale_(optimizer) was called when no parameter had a gradient: it divides what is in "
        f".grad, and {why}",
        hint,
    )


@mistake("scaler.unscale_ was called after the step", costs="stops", section="clip")
def unscale_after_step() -> Worded:
    return (
        "scaler.unscale_(optimizer) was called after scaler.step(optimizer) in the same iteration: the "
        "step had already unscaled the gradients and used them",
        "call scaler.unscale_(optimizer) before the step, or leave it out: the step unscales by itself",
    )


@mistake("the penalty was taken on gradients that were still scaled", section="two")
def penalty_on_scaled_gradients(counts: str) -> Worded:
    return (
        f"the penalty counts {counts}: it was taken on gradients that were still multiplied by the "
        "loss scale, so that it drowns the loss, and overflows long before it",
        "bring what torch.autograd.grad returns to its true size before you take the penalty: "
        "scaler.get_scale() is what it was multiplied by",
    )


@on(events.ScaledPenalty)
def _(event: events.ScaledPenalty, past: Past) -> Verdicts:
    if event.scale is None or event.scale >= _CLEARLY_SCALED:
        at = f", at a scale of {event.scale:g}" if event.scale else ""
        yield seen(penalty_on_scaled_gradients(f"far too much{at}"))
