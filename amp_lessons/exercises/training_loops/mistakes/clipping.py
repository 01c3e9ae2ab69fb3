"""Clipping to max_norm: whether it happened, when, and to which norm."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from amp_lessons.audit import known_mistakes
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.window import Window, is_near, same


def clipping(window: Window) -> Iterator[Finding]:
    """Name the mistake in clipping to ``max_norm``, where the optimizer was given another gradient."""
    max_norm = window.run.problem.max_norm
    if max_norm is None or window.given_rightly or torch.equal(window.after, window.before):
        return
    norm, applied_norm = float(window.mean_gradient.norm()), float(window.applied.norm())
    if window.scale > 1 and _clipped_while_scaled(window) and applied_norm < 0.5 * min(norm, max_norm):
        yield _clipped_before_unscale(window, applied_norm)
    if window.scale > 1 and is_near(applied_norm * window.scale, norm):
        yield known_mistakes.unscaled_twice(window.scale)
    if float(window.applied @ window.mean_gradient) / (norm * applied_norm) < 0.99:
        yield failed(
            "clipped_piecewise",
            "clipping changed the direction of the gradient: it was applied to single values or parameter "
            "by parameter",
            "clip all parameters together by their total norm: "
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
        )
    if is_near(applied_norm, norm):
        yield _never_clipped(window, norm)
    yield failed(
        "wrong_max_norm",
        f"a gradient of norm {norm:.4g} was applied with norm {applied_norm:.4g}, where "
        f"max_norm={max_norm:g} asks for {min(norm, max_norm):.4g}",
        "pass max_norm on to clip_grad_norm_, which leaves gradients below it as they are",
    )


def _clipped_while_scaled(window: Window) -> bool:
    unscale, accumulated = window.called("unscale_"), window.accumulated
    found = unscale[-1].gradients if unscale else None
    return found is not None and accumulated is not None and not same(found, accumulated)


def _clipped_before_unscale(window: Window, applied_norm: float) -> Finding:
    called = window.called("unscale_", directly=True)
    how = "before scaler.unscale_(optimizer)" if called else "without scaler.unscale_"
    return failed(
        "clip_before_unscale",
        f"the gradients were clipped {how}, while they were still multiplied by {window.scale:g}: the "
        f"update has norm {applied_norm:.3g}, which is max_norm divided by the scale",
        "call scaler.unscale_(optimizer), then clip, then scaler.step(optimizer)",
    )


def _never_clipped(window: Window, norm: float) -> Finding:
    if _changed_after_step(window):
        return failed(
            "clip_after_step",
            "the gradients were clipped after the step, which had already applied a gradient of norm "
            f"{norm:.4g}",
            "clip between scaler.unscale_(optimizer) and scaler.step(optimizer)",
        )
    return failed(
        "not_clipped",
        f"a gradient of norm {norm:.4g} was applied although max_norm is {window.run.problem.max_norm:g}: "
        "it was not clipped, or not by its total norm",
        "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm) after scaler.unscale_(optimizer); "
        "clip_grad_value_ limits single numbers, not the norm",
    )


def _changed_after_step(window: Window) -> bool:
    given = window.gradients_at_step
    later = [call.gradients for call in window.called("update", "zero_grad", "stepped")]
    return given is not None and any(g is not None and g.any() and not same(g, given) for g in later)
