"""Updates: each of plain SGD on the gradient that is wanted, clipped to max_norm where the task says so."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.mistakes import coverage, scaling, steps
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.training_loops.window import Window, close, is_near, same, windows


def mistakes(run: Run) -> Iterator[Finding]:
    """Go through the run in the order of time: what goes wrong first is the cause of what follows."""
    yield from coverage.inputs_changed(run)
    yield from _closure(run)
    yield from coverage.batches(run)
    yield from coverage.another_optimizer(run)
    yield from coverage.weights_reset(run)
    everything = windows(run)
    yield from scaling.kept_from_another_call(run)
    yield from scaling.not_scaled(everything[0])
    for before, window in zip([None, *everything], everything, strict=False):
        yield from _in_window(window, before)
    yield from scaling.scale_after_overflow(everything)
    if not run.problem.poisoned:
        yield from scaling.never_stepped(everything)
        yield from coverage.optimizer_untouched(run)


def _in_window(window: Window, before: Window | None) -> Iterator[Finding]:
    yield from _backward_count(window)
    yield from _leftovers(window, before)
    yield from _other_loss(window)
    if window.overflowed or window.skipped_backward_on_nonfinite_loss or window.overflow_was_hidden:
        yield from steps.cleared_after_nonfinite_loss(window)
        yield from scaling.overflow(window)
    elif not window.poisoned:  # at a scale so low that nothing overflows, a huge but finite update is right
        yield from _update(window)


def _closure(run: Run) -> Iterator[Finding]:
    """Find a closure that PyTorch does not refuse: one passed by position."""
    if any(call.arguments for call in run.calls("scaler.step")):
        yield catalogue.scaler.closure()


def _backward_count(window: Window) -> Iterator[Finding]:
    for step in window.steps:
        if len(step.backwards_into_grad) > 1:
            yield catalogue.steps.backward_twice()
        if not step.backwards and not window.skipped_backward_on_nonfinite_loss:
            yield _no_backward(window)


def _no_backward(window: Window) -> Finding:
    if any(len(step.backwards) > 1 for step in window.run.steps):
        return failed(
            "losses_summed",
            "the losses of several batches went through one backward pass together: the graphs of all of "
            "them were kept in memory at once",
            "call scaler.scale(loss).backward() for every batch, right after its forward pass",
        )
    return failed(
        "no_backward",
        "a loss was computed but backward was never called on it",
        "call scaler.scale(loss).backward() for every batch",
    )


def _leftovers(window: Window, before: Window | None) -> Iterator[Finding]:
    """Find gradients of earlier windows: beside scaled ones they are too small to see in the weights."""
    passes = (passes for step in window.steps for passes in step.backwards_into_grad)
    backward = next(passes, None)
    if backward is not None and backward.leftover & set(backward.gradients):
        if before is not None:
            yield from steps.carried_over(before)
        yield catalogue.steps.no_zero_grad()


def _other_loss(window: Window) -> Iterator[Finding]:
    """Compare the losses with those of the model's plain outputs and the loader's targets."""
    if window.poisoned or window.moved_within:
        return
    for step, right in zip(window.steps, window.true_losses, strict=True):
        if math.isfinite(step.loss.value) and not math.isclose(step.loss.value, right, rel_tol=0.05):
            yield failed(
                "other_loss",
                f"the loss of a batch is {step.loss.value:.4g}, where loss_fn(model(inputs), targets) is "
                f"{right:.4g}: loss_fn was given other outputs or targets (a softmax before a cross "
                "entropy, for one)",
                "call loss_fn on the model's outputs and the batch's own targets, as they are",
            )


def _update(window: Window) -> Iterator[Finding]:
    """Compare the update with the wanted one, and name the mistake behind a difference."""
    if window.moved_within:
        yield steps.moved_within(window)
    yield from steps.stepped_again_on_nothing(window)
    acceptable = [window.mean_gradient, torch.stack(window.true_gradients).mean(0)]
    if any(close(window, window.wanted(gradient)) for gradient in acceptable):
        return
    for explanations in _EXPLANATIONS:
        yield from explanations(window)


def clipping(window: Window) -> Iterator[Finding]:
    """Name the mistake in clipping to ``max_norm``, where the optimizer was given another gradient."""
    max_norm, given = window.run.problem.max_norm, window.gradients_at_step
    if max_norm is None or window.given_rightly or given is None or not given.any():
        return
    # the weights may be too coarse to show what was applied: the optimizer knows
    norm, given_norm = float(window.mean_gradient.norm()), float(given.norm())
    wanted_norm = min(norm, max_norm)
    rescaled = window.start_gradient / window.scale
    if abs(rescaled - 1) > 0.01:
        yield catalogue.steps.loss_rescaled(
            "the gradient that was to be clipped",
            rescaled,
            "the loss was multiplied by that before backward",
            "scale the loss by the scaler and by nothing else, and clip its gradients",
        )
    if window.scale > 1 and is_near(given_norm * window.scale, wanted_norm) and _unscaled_by_hand(window):
        yield catalogue.steps.unscaled_twice(window.scale)
    if window.scale > 1 and _clipped_while_scaled(window) and given_norm < 0.5 * wanted_norm:
        yield _clipped_before_unscale(window, given_norm)
    if window.scale > 1 and is_near(given_norm * window.scale, norm):
        yield catalogue.steps.unscaled_twice(window.scale)
    if float(given @ window.mean_gradient) / (norm * given_norm) < 0.99:
        yield failed(
            "clipped_piecewise",
            "clipping changed the direction of the gradient: it was applied to single values or parameter "
            "by parameter",
            "clip all parameters together by their total norm: "
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
        )
    if is_near(given_norm, norm):
        yield _never_clipped(window, norm)
    yield failed(
        "wrong_max_norm",
        f"a gradient of norm {norm:.4g} was applied with norm {given_norm:.4g}, where "
        f"max_norm={max_norm:g} asks for {wanted_norm:.4g}{_which_norm(window, given_norm)}",
        "clip all parameters in one call, to max_norm itself, by the norm that clip_grad_norm_ takes by "
        "default; it leaves gradients below max_norm as they are",
    )


def _which_norm(window: Window, given_norm: float) -> str:
    """Say of a wrong norm what it is, where the loss scale explains it, or how it came about."""
    max_norm, scale = window.run.problem.max_norm or math.nan, window.scale
    if scale > 1 and is_near(given_norm, max_norm / scale):
        return (
            f"; it is max_norm divided by the loss scale {scale:g}, but after scaler.unscale_ gradients have "
            "their true size"
        )
    clips = len(window.called("clip"))
    return f"; clip_grad_norm_ was called {clips} times for this batch" if clips > 1 else ""


def _clipped_while_scaled(window: Window) -> bool:
    unscale, accumulated = window.called("unscale_"), window.accumulated
    found = unscale[-1].gradients if unscale else None
    return found is not None and accumulated is not None and not same(found, accumulated)


def _unscaled_by_hand(window: Window) -> bool:
    """Whether the scaler was given gradients that had been divided by the scale already.

    Where the true norm is above ``max_norm``, clipping scaled gradients leaves the same; so all windows are
    asked in which it is below.
    """
    max_norm = window.run.problem.max_norm or math.inf
    for each in windows(window.run):
        unscale, norm = each.called("unscale_"), float(each.mean_gradient.norm())
        if each.overflowed or not unscale or unscale[-1].gradients is None or norm > 0.85 * max_norm:
            continue
        return is_near(float(unscale[-1].gradients.norm()), norm)
    return False


def _clipped_before_unscale(window: Window, given_norm: float) -> Finding:
    called = window.called("unscale_", directly=True)
    how = "before scaler.unscale_(optimizer)" if called else "without scaler.unscale_"
    max_norm, scale = window.run.problem.max_norm or math.nan, window.scale
    divided = next((n for n in (1, 2) if is_near(given_norm, max_norm / scale**n)), 0)
    which = ("", ", which is max_norm divided by the scale", ", which is max_norm divided by the scale twice")
    return catalogue.steps.clip_before_unscale(
        f"{how}, while they were still multiplied by {scale:g}",
        f"the update has norm {given_norm:.3g}{which[divided]}",
    )


def _never_clipped(window: Window, norm: float) -> Finding:
    if _changed_after_step(window):
        return catalogue.steps.clip_after_step(f"a gradient of norm {norm:.4g}")
    if _clipped_once(window):
        return failed(
            "not_clipped",
            f"only the first batch's gradients were clipped; later one of norm {norm:.4g} was applied "
            f"although max_norm is {window.run.problem.max_norm:g}: what is kept in a variable may be used "
            "up after one pass, as model.parameters() is, a generator, or may switch the clip off",
            "call model.parameters() for every batch, or keep list(model.parameters())",
        )
    applied = (
        f"a gradient of norm {norm:.4g} was applied although max_norm is {window.run.problem.max_norm:g}"
    )
    if window.run.problem.dtype == torch.bfloat16:  # the runs before this one were in fp16, and clipped
        return failed(
            "not_clipped",
            f"{applied}; in fp16 it was clipped: is the clip inside a branch?",
            "clip whatever the dtype; unscale_ of a scaler that is disabled does nothing",
        )
    return failed(
        "not_clipped",
        f"{applied}: {_why_never_clipped(window)}",
        "once the gradients have their true size, clip the norm of all of them together, as "
        "torch.nn.utils.clip_grad_norm_ does; clip_grad_value_ limits single numbers, not the norm",
    )


def _why_never_clipped(window: Window) -> str:
    """Say what the loop's clipping saw, if it called ``clip_grad_norm_``."""
    seen = [call.gradients for call in window.run.calls("clip") if call.gradients is not None]
    if seen and not any(gradients.any() for gradients in seen):
        return "clip_grad_norm_ was called before there were any gradients, that is before backward"
    if seen and not window.called("clip"):
        return "clip_grad_norm_ was called for other batches, and not for this one: is it inside a branch?"
    for call in window.called("clip"):
        norm = math.nan if call.gradients is None else float(call.gradients.norm())
        if not is_near(call.norm, norm):
            return (
                f"clip_grad_norm_ took {call.norm:.4g} for the norm of gradients whose total norm is "
                f"{norm:.4g}: was it given another norm_type, or only some of the parameters?"
            )
    return "it was not clipped, or not by its total norm, or to a threshold above it"


def _changed_after_step(window: Window) -> bool:
    given = window.gradients_at_step
    later = [call.gradients for call in window.called("update", "zero_grad", "stepped")]
    return given is not None and any(g is not None and g.any() and not same(g, given) for g in later)


def _clipped_once(window: Window) -> bool:
    """Whether something changed the gradients of the run's first window, and of no other, before its step."""
    first, *others = (_changed_before_step(each) for each in windows(window.run))
    return first and not any(others)


def _changed_before_step(window: Window) -> bool:
    unscaled, stepped = window.called("unscaled"), window.called("scaler.step")
    if not unscaled or not stepped or unscaled[0].gradients is None or stepped[0].gradients is None:
        return False
    return not same(unscaled[0].gradients, stepped[0].gradients)


# in the order in which one may be the cause of another; the last always has something to say
_EXPLANATIONS = (
    steps.stepped_twice,
    steps.direct_step,
    clipping,
    steps.accumulation,
    steps.no_step,
    scaling.mostly_vanished,
    steps.wrong_factor,
    steps.partial,
    steps.other_gradient,
    steps.gradients_changed,
    steps.weights_changed,
    steps.unexplained,
)
