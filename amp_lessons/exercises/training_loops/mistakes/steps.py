"""Why an update is not the one it should be: mistakes in stepping, unscaling, zeroing and accumulating."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.mistakes import exceptions, scaling
from amp_lessons.exercises.training_loops.window import Window, factor_of, is_near, same, tolerance
from amp_lessons.exercises.watching.tape_there import Call, Event


def moved_within(window: Window) -> Finding:
    """Say that the weights moved before the window was over."""
    begins_at_0 = "; does your count begin at 0?" if _steps_on_first_batches(window) else ""
    return failed(
        "steps_every_batch",
        f"the weights changed within a window of {window.planned_batches} batches: the step must wait until "
        f"the gradients of all of them are added up{begins_at_0}",
        "count the batches of the window: step, update and zero_grad belong after its last one only",
    )


def _steps_on_first_batches(window: Window) -> bool:
    """Whether each window's first batch was stepped on, and no other: ``i % accumulation_steps == 0``."""
    first_epoch = window.run.steps[: len(window.run.batches)]
    stepped = [i for i, step in enumerate(first_epoch) if step.called("optimizer.step")]
    return stepped[:2] == [0, window.planned_batches]


def stepped_twice(window: Window) -> Iterator[Finding]:
    """Find more than one step for a batch."""
    inside = [c for c in window.called("optimizer.step") if c.in_step]
    direct = window.called("optimizer.step", directly=True)
    if inside and direct:
        yield catalogue.steps.double_step(
            how="scaler.step(optimizer) and optimizer.step() were both called, the latter without inf check",
            hint="scaler.step(optimizer) calls optimizer.step() itself; remove the other call",
        )
    if len(inside) + len(direct) > len(window.steps):
        yield catalogue.steps.double_step()


def stepped_again_on_nothing(window: Window) -> Iterator[Finding]:
    """Find a second step that changed nothing only because plain SGD has no momentum."""
    steps = window.called("optimizer.step")
    if len(steps) > 1 and not any(_any_gradient(call) for call in steps[1:]) and _any_gradient(steps[0]):
        yield catalogue.steps.step_without_backward()


def _any_gradient(call: Call) -> bool:
    return call.gradients is not None and bool(call.gradients.any())


def direct_step(window: Window) -> Iterator[Finding]:
    """Find a step past the scaler, on gradients that were still scaled."""
    direct = window.called("optimizer.step", directly=True)
    given = window.gradients_at_step
    if not direct or window.scale <= 1 or given is None or window.called("unscale_"):
        return
    still_scaled = given.norm() > math.sqrt(window.scale) * window.mean_gradient.norm()
    if bool(still_scaled) or not given.isfinite().all():
        yield exceptions.stepped_directly(window.run)


def accumulation(window: Window) -> Iterator[Finding]:
    """Name the mistake in adding up the gradients of a window."""
    if window.planned_batches == 1:
        return
    if _stepped_before_the_last_backward(window):
        yield catalogue.steps.step_before_backward("the backward pass of the window's last batch")
    updates = window.called("update")
    if len(updates) > 1 or any(s.called("unscale_", directly=True) for s in window.steps[:-1]):
        yield catalogue.scaler.update_every_batch()
    if any(s.called("zero_grad") for s in window.steps[:-1]):
        yield _window_cleared(
            "only the last batch of it was applied",
            "call optimizer.zero_grad() once per window: after its step, or before its first batch",
        )
    yield from _weights_of_batches(window)


def _window_cleared(what: str, hint: str) -> Finding:
    """Say that gradients were thrown away before the window was over, and ``what`` was applied."""
    return failed("window_cleared", f"zero_grad() was called within a window: {what}", hint)


def cleared_after_nonfinite_loss(window: Window) -> Iterator[Finding]:
    """Find a window of which a loss that is not finite let only the batches behind it be applied."""
    if window.cleared_after_nonfinite_loss and not torch.equal(window.before, window.after):
        yield _window_cleared(
            "a batch had a loss that was not finite, those before it were thrown away, and the step was made "
            "with those behind it",
            _WHATEVER_ITS_LOSS,
        )


def carried_over(window: Window) -> Iterator[Finding]:
    """Find a window without a step because the loop had gone on at its last batch, whose loss was not finite.

    Its gradients are still there when the next window begins.
    """
    if window.planned_batches > 1 and not window.stepped and not window.last.loss_is_finite:
        yield failed(
            "steps_too_rarely",
            "the loss of a window's last batch was not finite, and where the loop went on to the next one "
            "(by continue, say) it left out the window's step as well: the gradients of its other batches "
            "were counted in the next window",
            _WHATEVER_ITS_LOSS,
        )


_WHATEVER_ITS_LOSS = (
    "do for every batch the same, whatever its loss: scaler.step leaves out the step of a window whose "
    "gradients are not finite, and scaler.update lowers the scale"
)


def _stepped_before_the_last_backward(window: Window) -> bool:
    steps, passes = window.called("scaler.step"), window.last.backwards_into_grad
    if not steps or not passes:
        return False
    events = window.run.tape.events
    return _index(events, steps[-1]) < _index(events, passes[-1])


def _index(events: list[Event], wanted: Event) -> int:
    """Find the very event, for equal ones differ in place."""
    return next(i for i, event in enumerate(events) if event is wanted)


def _weights_of_batches(window: Window) -> Iterator[Finding]:
    starts = [step.start_gradient for step in window.steps if step.start_gradient]
    if max(starts) > 1.01 * min(starts):
        yield failed(
            "loss_divided_unevenly",
            "the batches of one window were weighted differently: their losses were divided by different "
            "numbers",
            "divide every loss by accumulation_steps, not by a count that grows within the window",
        )
    steps = window.planned_batches
    if is_near(factor_of(window), steps):
        yield failed(
            "loss_not_divided",
            f"the update is {steps} times too large: the losses of the window were added up, not averaged",
            "divide each loss by accumulation_steps before scaling it",
        )


def no_step(window: Window) -> Iterator[Finding]:
    """Say why the weights did not move."""
    if not torch.equal(window.after, window.before):
        return
    if window.called("optimizer.step", "scaler.step"):
        yield from _step_without_effect(window)
    elif window.planned_batches > 1 and len(window.steps) < window.planned_batches:
        yield failed(
            "last_window_dropped",
            f"no step followed the {len(window.steps)} batches left over at the end of an epoch: their "
            "gradients are lost, or end up in a window of the next epoch",
            "step also where the loader is at its end and the window is not full",
        )
    elif window.run.calls("optimizer.step"):
        yield _steps_too_rarely(window)
    else:
        yield catalogue.steps.no_step()


def _step_without_effect(window: Window) -> Iterator[Finding]:
    order = [
        call.name for call in window.last.called("zero_grad", "scaler.step", "optimizer.step", directly=True)
    ]
    if order and order[0] == "zero_grad" and len(order) > 1:
        yield catalogue.steps.gradients_cleared()
    found = window.accumulated
    if window.scale > 1 and found is not None and not found.any():
        yield catalogue.steps.scale_too_small(window.start_gradient, scaling.vanished(window))
    if window.called("scaler.step") and not window.called("optimizer.step"):
        yield failed(
            "step_refused",
            "scaler.step(optimizer) was called but never came to step, although no gradient overflowed: an "
            "exception of the scaler was swallowed",
            "let exceptions through; this one usually means that scaler.update() was missing in the "
            "iteration before",
        )


def _steps_too_rarely(window: Window) -> Finding:
    steps = window.run.steps
    after = [str(i + 1) for i, step in enumerate(steps) if step.called("optimizer.step")]
    if window.planned_batches == 1:
        return failed(
            "steps_too_rarely",
            f"only {len(after)} steps were taken for {len(steps)} batches: after a backward pass no step "
            "followed",
            "call scaler.step(optimizer) and scaler.update() for every batch, inside the loop over them",
        )
    return failed(
        "steps_too_rarely",
        f"a window of {window.planned_batches} batches ended without a step: of {len(steps)} batches, steps "
        f"followed only batch {', '.join(after)}",
        "step once per window of accumulation_steps batches, and at the end of the epoch",
    )


def wrong_factor(window: Window) -> Iterator[Finding]:
    """Name the mistake behind an update of the right direction and the wrong length."""
    factor, scale, start = factor_of(window), window.scale, window.start_gradient
    if start > 1 and is_near(factor, start):
        yield failed(
            "gradients_still_scaled",
            f"the update is {start:g} times too large, exactly the loss scale: the gradients were "
            "applied without being unscaled",
            "call scaler.step(optimizer), which divides the gradients by the scale first",
        )
    if scale > 1 and is_near(factor, 1 / scale):
        yield catalogue.steps.unscaled_twice(scale)
    if abs(start / scale - 1) > 0.01 and is_near(factor, start / scale):
        yield catalogue.steps.loss_rescaled(
            "the update", start / scale, _weight_seen(window), _loss_as_it_is(window)
        )


def _loss_as_it_is(window: Window) -> str:
    if window.planned_batches == 1:
        return "call backward on the loss as loss_fn returns it, scaled by the scaler and by nothing else"
    batches = window.planned_batches
    return (
        "multiply the loss by nothing but the scale and its weight in the mean: over a window of "
        f"{batches} batches that is 1/{batches}, however many batches the loader has"
    )


def _weight_seen(window: Window) -> str:
    """Say by what the loss was multiplied beside the scale."""
    weight = window.start_gradient / window.scale
    if window.planned_batches == 1:
        return f"the loss was multiplied by {weight:.4g} before backward"
    share = weight / window.planned_batches
    how = f"multiplied by {share:.4g}" if share > 1 else f"divided by {1 / share:.4g}"
    return f"each loss was {how}, where a window has {window.planned_batches} batches"


def partial(window: Window) -> Iterator[Finding]:
    """Recognise an update that reached only some of the parameters."""
    sizes = [parameter.numel() for parameter in window.run.parameters]
    changes = (window.after - window.before).split(sizes)
    untouched = sum(not bool(change.any()) for change in changes)
    given = window.gradients_at_step
    if untouched and not (given is not None and untouched == len(sizes) and not given.any()):
        yield failed(
            "parameters_left_out",
            f"{untouched} of the {len(sizes)} parameters did not change: they are frozen "
            "(requires_grad=False), or the step did not reach them",
            "train all parameters of the model with the optimizer that was passed in",
        )


def other_gradient(window: Window) -> Iterator[Finding]:
    """Find gradients that are wrong as backward left them, although the loss is right."""
    found, true = window.accumulated, window.mean_gradient
    if found is None:
        return
    if bool((found / window.start_gradient - true).norm() < tolerance(window) * true.norm()):
        return
    yield failed(
        "other_gradient",
        "backward computed other gradients than those of loss_fn(model(inputs), targets): something was "
        "added to the loss (a penalty, say), or gradients were changed on their way, by hooks or between two "
        "backward passes",
        "call backward on the scaled loss and nothing else",
    )


def gradients_changed(window: Window) -> Iterator[Finding]:
    """Find gradients that were changed between backward and the step."""
    accumulated, given = window.accumulated, window.gradients_at_step
    if accumulated is None or given is None:
        return
    unscale = window.called("unscale_")
    if unscale and unscale[-1].gradients is not None and not same(unscale[-1].gradients, accumulated):
        yield catalogue.steps.gradients_changed_before_unscale(f"{window.scale:g} times")
    unscaled = window.called("unscaled")
    reference = unscaled[-1].gradients if unscaled else accumulated
    if reference is not None and not same(given, reference):
        if window.run.problem.max_norm is None:
            yield catalogue.steps.gradients_changed("the gradients")
        yield catalogue.steps.gradients_changed(
            "the gradients",
            how=" by more than clipping to max_norm, which leaves their direction as it is (by a "
            "clip_grad_value_ beside it, say)",
            hint="clip by clip_grad_norm_ and change them by nothing else",
        )


def weights_changed(window: Window) -> Iterator[Finding]:
    """Find weights that moved otherwise than by the optimizer, which had the right gradients."""
    given, applied = window.gradients_at_step, window.applied
    moved_otherwise = given is None or bool((applied - given).norm() > 0.01 * given.norm())
    if window.given_rightly and moved_otherwise:
        yield catalogue.steps.weights_changed("the optimizer was given the right gradients")


def unexplained(window: Window) -> Iterator[Finding]:
    """Say how far the update is off, where nothing says why."""
    applied, wanted = window.applied, window.wanted(window.mean_gradient)
    if not applied.isfinite().all():
        yield failed(
            "weights_not_finite",
            "the weights became inf or NaN although no gradient overflowed",
            "print the largest gradient right before the step",
        )
    difference = float((applied - wanted).norm() / wanted.norm())
    yield catalogue.steps.wrong_update(
        "the update",
        f"the applied gradient is {difference:.1%} off",
        "compare with the loop in fp32: forward, backward, one step, zero_grad, and nothing in between",
    )
