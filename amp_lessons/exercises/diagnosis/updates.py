"""From the gradient of each loss to the change of the weights: scaling, unscaling, stepping, skipping.

With plain SGD the change of the weights tells which gradient was applied, and the true gradient is known, so
most of these mistakes show as a factor between the two.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from amp_lessons.exercises.bench import Run, Step
from amp_lessons.exercises.diagnosis import errors
from amp_lessons.exercises.results import Finding, failed
from amp_lessons.exercises.spies import Call, flat

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.03}
# at a small but sufficient loss scale the smallest gradients of the tiny problem are subnormal
_TOLERANCE_NEAR_UNDERFLOW = 0.12


@dataclass(frozen=True)
class Window:
    """The batches between two updates of the weights, one of them unless gradients are accumulated."""

    run: Run
    steps: list[Step]

    @property
    def planned_batches(self) -> int:
        """How many batches a full window has."""
        return self.run.problem.accumulation_steps

    @property
    def before(self) -> Tensor:
        """The weights before the window."""
        return self.steps[0].loss.weights

    @property
    def after(self) -> Tensor:
        """The weights after the window."""
        return self.steps[-1].weights_after

    @property
    def last(self) -> Step:
        """The handling of the last batch, where the step belongs."""
        return self.steps[-1]

    @property
    def calls(self) -> list[Call]:
        """All calls of scaler and optimizer in the window, in order."""
        return [call for step in self.steps for call in step.calls]

    def called(self, *names: str, directly: bool = False) -> list[Call]:
        """List the calls of these names; ``directly`` leaves out what ``scaler.step`` did itself."""
        return [call for step in self.steps for call in step.called(*names, directly=directly)]

    @property
    def applied(self) -> Tensor:
        """The gradient that the change of the weights amounts to."""
        return (self.before - self.after) / self.run.problem.learning_rate

    @cached_property
    def true_gradients(self) -> list[Tensor]:
        """The fp32 gradient of each batch at the weights before the window."""
        return [
            self.run.true_gradient(self.before, step.batch) for step in self.steps if step.batch is not None
        ]

    def wanted(self, gradient: Tensor) -> Tensor:
        """Return the gradient to apply where the true one is ``gradient``: clipped, if the task says so."""
        max_norm = self.run.problem.max_norm
        return (
            gradient if max_norm is None else gradient * min(1.0, max_norm / (float(gradient.norm()) + 1e-6))
        )

    @cached_property
    def mean_gradient(self) -> Tensor:
        """The gradient of the mean loss of a full window."""
        return torch.stack(self.true_gradients).sum(0) / self.planned_batches

    @property
    def scale(self) -> float:
        """The scale of an enabled scaler in this window, 1 without one."""
        scales = [call.scale for call in self.called("scale") if call.enabled]
        return scales[-1] if scales else 1.0

    @property
    def seed(self) -> float:
        """By how much the gradients of this window were multiplied, beyond the mean over the window."""
        seed = self.last.seed
        return (1.0 if seed is None else seed) * self.planned_batches

    @property
    def accumulated(self) -> Tensor | None:
        """What backward left in ``.grad``, flat; None where the loop did not use ``.grad``."""
        for step in reversed(self.steps):
            if step.backwards and step.backwards[-1].gradients:
                found = step.backwards[-1].gradients
                return flat(self.run.parameters, [found.get(i) for i in range(len(self.run.parameters))])
        return None

    @property
    def overflowed(self) -> bool:
        """Whether backward left inf or NaN."""
        gradients = self.accumulated
        return gradients is not None and not bool(gradients.isfinite().all())

    @property
    def given_up(self) -> bool:
        """Whether the loop saw a non-finite loss and went on to the next batch without a backward pass."""
        return any(not math.isfinite(s.loss.value) and not s.backwards for s in self.steps)

    @property
    def poisoned(self) -> bool:
        """Whether a batch of this window was made to overflow."""
        bad = dict(self.run.problem.poisoned)
        return any(step.batch is None or step.batch in bad for step in self.steps)

    @property
    def gradients_at_step(self) -> Tensor | None:
        """The gradients that the optimizer was given."""
        steps = self.called("optimizer.step")
        return steps[0].gradients if steps else None


def windows(run: Run) -> list[Window]:
    """Cut a run into the windows that the task asks for; the last of an epoch may be shorter."""
    per_epoch, length = len(run.batches), run.problem.accumulation_steps
    return [
        Window(run, run.steps[first : min(first + length, start + per_epoch)])
        for start in range(0, len(run.steps), per_epoch)
        for first in range(start, min(start + per_epoch, len(run.steps)), length)
    ]


def first_mistake(run: Run) -> Finding | None:
    """Return the root cause among the mistakes of scaling and stepping, None when there is none."""
    return next((finding for finding in _mistakes(run) if finding is not None), None)


def _mistakes(run: Run) -> Iterator[Finding | None]:
    """Go through the run in the order of time: what goes wrong first is the cause of what follows."""
    yield _inputs_changed(run)
    yield _batches(run)
    yield _another_optimizer(run)
    everything = windows(run)
    for window in everything:
        yield _backward_count(window)
        yield _leftovers(window)
        yield _not_scaled(window)
        yield _overflow(window) if window.overflowed or window.given_up else _update(window)
    yield _scale_after_overflow(everything)
    yield _optimizer_untouched(run)


def _inputs_changed(run: Run) -> Finding | None:
    if not run.inputs_changed:
        return None
    return failed(
        "inputs_changed",
        "the loader's own tensors were changed in place: the next epoch, and whoever uses the data next, "
        "gets the changed ones",
        "make new tensors instead of changing the batch in place",
    )


def _another_optimizer(run: Run) -> Finding | None:
    if run.optimizer_changed:
        return failed(
            "optimizer_changed",
            "the settings of the optimizer that was passed in (its learning rate, say) are different after "
            "training",
            "leave the optimizer's settings to whoever made it; scaling is undone by the scaler, not by "
            "the learning rate",
        )
    steps = run.calls("optimizer.step")
    return _optimizer_unused() if steps and all(c.owner != run.optimizer_id for c in steps) else None


def _batches(run: Run) -> Finding | None:
    bad = dict(run.problem.poisoned)
    wanted = [i for _ in range(run.problem.epochs) for i in range(len(run.batches)) if i not in bad]
    seen = [step.batch for step in run.steps]
    if bad:
        seen = [i for i in seen if i is not None and i not in bad]
    if seen == wanted:
        return None
    if None in seen:
        return failed(
            "inputs_altered",
            "the model was given other values than the loader yields: a batch was changed on its way to "
            "model(inputs)",
            "pass the inputs as they are; autocast does the casting",
        )
    if len(seen) < len(wanted):
        return _too_few(run, len(seen), len(wanted))
    return failed(
        "batches_repeated",
        f"{len(seen)} training passes were made over {len(wanted)} batches: some batches were used more "
        "often than others",
        "one forward, backward and step per batch of the loader",
    )


def _too_few(run: Run, seen: int, wanted: int) -> Finding:
    if run.problem.poisoned:
        return failed(
            "stops_at_overflow",
            "training ended at the first batch that overflowed; an overflow is an everyday event in "
            "float16, after which the scaler lowers its scale",
            "let scaler.step skip that batch, call scaler.update() and go on",
        )
    return failed(
        "batches_skipped",
        f"only {seen} of {wanted} batches were trained on ({run.problem.epochs} epochs of "
        f"{len(run.batches)} batches)",
        "loop over the whole loader anew in each epoch",
    )


def _backward_count(window: Window) -> Finding | None:
    for step in window.steps:
        if len(step.backwards) > 1:
            return errors.backward_twice()
        if not step.backwards and not window.given_up:
            return failed(
                "no_backward",
                "a loss was computed but backward was never called on it",
                "call scaler.scale(loss).backward() for every batch",
            )
    return None


def _leftovers(window: Window) -> Finding | None:
    """Find gradients of earlier windows: beside scaled ones they are too small to see in the weights."""
    first = next((step.backwards[0] for step in window.steps if step.backwards), None)
    if first is None or not (first.leftover & set(first.gradients)):
        return None
    return failed(
        "no_zero_grad",
        "backward added to gradients that were still there from an earlier step: they were not set to zero "
        "in between",
        "call optimizer.zero_grad() once per update, before the forward pass or after the step",
    )


def _not_scaled(window: Window) -> Finding | None:
    seed = window.last.seed
    if window.run.problem.dtype != torch.float16 or seed is None or seed > 1.0:
        return None
    if window.scale > 1.0:
        return failed(
            "scaled_loss_discarded",
            "scaler.scale(loss) was called but backward ran on the unscaled loss, so scaler.step divides "
            f"gradients by {window.scale:g} that were never multiplied by it",
            "use what scale returns: scaler.scale(loss).backward()",
        )
    return failed("loss_not_scaled", f"{_why_unscaled(window.run)}: {_vanished(window)}", _SCALING_HINT)


_SCALING_HINT = (
    "make scaler = torch.amp.GradScaler(device_type, enabled=dtype == torch.float16) once, then "
    "scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()"
)


def _why_unscaled(run: Run) -> str:
    made = run.calls("GradScaler") + run.calls("scale")
    if any(not call.enabled for call in made):
        return "the GradScaler is switched off (enabled=False) in float16, so the loss was not scaled"
    if any(call.enabled for call in run.calls("scale")):
        return "the loss scale is 1, so the loss was not scaled"
    if made:
        return "a GradScaler was made, but scaler.scale(loss) was never called"
    return "float16 without loss scaling: backward started from the plain loss, no GradScaler was used"


def _vanished(window: Window) -> str:
    true, found = window.mean_gradient, window.accumulated
    if found is None:
        return "small gradients vanish in float16"
    zero_fraction = float(((found == 0) & (true != 0)).sum() / (true != 0).sum())
    if zero_fraction < 0.01:
        return "gradients below 2^-25 vanish in float16"
    return f"{zero_fraction:.0%} of the gradients of the first batch became zero"


def _close(window: Window, wanted: Tensor) -> bool:
    tolerance = _TOLERANCE[window.run.problem.dtype]
    if window.run.problem.loss_weight < 2.0**-15:
        tolerance = _TOLERANCE_NEAR_UNDERFLOW
    return bool((window.applied - wanted).norm() <= tolerance * wanted.norm())


def _update(window: Window) -> Finding | None:
    """Compare the update with the wanted one, and name the mistake behind a difference."""
    if window.poisoned:
        return None  # at a scale so low that nothing overflows, a huge but finite update is the right one
    if any(step.moved for step in window.steps[:-1]):
        return _moved_within(window)
    true = window.true_gradients
    acceptable = [window.mean_gradient, torch.stack(true).mean(0)]
    if any(_close(window, window.wanted(gradient)) for gradient in acceptable):
        return None
    for explain in _EXPLANATIONS:
        finding = explain(window)
        if finding is not None:
            return finding
    return _unexplained(window)


def _moved_within(window: Window) -> Finding:
    return failed(
        "steps_every_batch",
        f"the weights changed within a window of {window.planned_batches} batches: the step must wait until "
        "the gradients of all of them are added up",
        "call step, update and zero_grad only when (i + 1) % accumulation_steps == 0, and at the end of "
        "the epoch",
    )


def _factor(window: Window) -> float:
    """By which factor the applied gradient differs from the wanted one; NaN if it points elsewhere."""
    wanted, applied = window.wanted(window.mean_gradient), window.applied
    factor = float(applied @ wanted / (wanted @ wanted))
    off_direction = float((applied - factor * wanted).norm() / max(abs(factor) * float(wanted.norm()), 1e-30))
    return factor if off_direction < 0.15 else math.nan


def _is(factor: float, expected: float) -> bool:
    return math.isclose(factor, expected, rel_tol=0.1)


def _no_step(window: Window) -> Finding | None:
    if not torch.equal(window.after, window.before):
        return None
    if window.called("optimizer.step", "scaler.step"):
        return _step_without_effect(window)
    if window.planned_batches > 1 and len(window.steps) < window.planned_batches:
        return failed(
            "last_window_dropped",
            f"the {len(window.steps)} batches left over at the end of an epoch were never applied: their "
            "gradients are lost",
            "also step after the last batch: if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader)",
        )
    return failed(
        "no_step",
        "gradients were computed but no step followed: the weights did not change",
        "call scaler.step(optimizer) after backward",
    )


def _step_without_effect(window: Window) -> Finding | None:
    order = [
        call.name for call in window.last.called("zero_grad", "scaler.step", "optimizer.step", directly=True)
    ]
    if order and order[0] == "zero_grad" and len(order) > 1:
        return errors.gradients_cleared()
    found = window.accumulated
    if window.scale > 1 and found is not None and not found.any():
        return _scale_too_small(window)
    return None


def _scale_too_small(window: Window) -> Finding:
    return failed(
        "scale_too_small",
        f"the loss scale {window.seed:g} is too small: {_vanished(window)}",
        "leave init_scale at its default, 65536; the scaler lowers it by itself",
    )


def _mostly_vanished(window: Window) -> Finding | None:
    found = window.accumulated
    if window.run.problem.dtype != torch.float16 or found is None or not window.seed < 2**6:
        return None
    lost = (found / window.seed - window.mean_gradient).norm() > 0.1 * window.mean_gradient.norm()
    return _scale_too_small(window) if bool(lost) else None


def _stepped_twice(window: Window) -> Finding | None:
    inside = [c for c in window.called("optimizer.step") if c.in_step]
    direct = window.called("optimizer.step", directly=True)
    if inside and direct:
        return failed(
            "double_step",
            "scaler.step(optimizer) and optimizer.step() were both called: two updates per batch, the "
            "second without inf check",
            "scaler.step(optimizer) calls optimizer.step() itself; remove the other call",
        )
    if len(inside) + len(direct) > len(window.steps):
        return failed(
            "double_step",
            "the optimizer stepped twice for one batch",
            "one scaler.step(optimizer) per iteration",
        )
    return None


def _direct_step(window: Window) -> Finding | None:
    direct = window.called("optimizer.step", directly=True)
    given = window.gradients_at_step
    if not direct or window.scale <= 1 or given is None or window.called("unscale_"):
        return None
    still_scaled = given.norm() > math.sqrt(window.scale) * window.mean_gradient.norm()
    return (
        errors.optimizer_step_direct(window.run) if bool(still_scaled) or not given.isfinite().all() else None
    )


def _accumulation(window: Window) -> Finding | None:
    steps = window.planned_batches
    if steps == 1:
        return None
    updates = window.called("update")
    if len(updates) > 1 or any(s.called("unscale_", directly=True) for s in window.steps[:-1]):
        return errors.update_every_batch()
    if any(s.called("zero_grad") for s in window.steps[:-1]):
        return failed(
            "window_cleared",
            "zero_grad() was called within a window: only the last batch of it was applied",
            "call optimizer.zero_grad() only after the step",
        )
    if _is(_factor(window), steps):
        return failed(
            "loss_not_divided",
            f"the update is {steps} times too large: the losses of the window were added up, not averaged",
            "divide each loss by accumulation_steps before scaling it",
        )
    return None


def _wrong_factor(window: Window) -> Finding | None:
    factor, scale, seed = _factor(window), window.scale, window.seed
    if seed > 1 and _is(factor, seed):
        return failed(
            "gradients_still_scaled",
            f"the update is {factor:.4g} times too large, exactly the loss scale: the gradients were "
            "applied without being unscaled",
            "call scaler.step(optimizer), which divides the gradients by the scale first",
        )
    if scale > 1 and _is(factor, 1 / scale):
        return _unscaled_twice(window)
    if not math.isnan(factor) and _is(factor, seed / scale):
        return failed(
            "loss_rescaled",
            f"the update is {factor:.4g} times the right one: the loss was multiplied by that before "
            "backward",
            "call backward on the loss as loss_fn returns it, scaled by the scaler and by nothing else",
        )
    return None


def _unscaled_twice(window: Window) -> Finding:
    return failed(
        "unscaled_twice",
        f"the update is {window.scale:g} times too small: the gradients were divided by the loss scale twice",
        "leave the unscaling to scaler.unscale_ or scaler.step, which do it once",
    )


def _gradients_changed(window: Window) -> Finding | None:
    accumulated, given = window.accumulated, window.gradients_at_step
    if accumulated is None or given is None:
        return None
    unscale = window.called("unscale_")
    if unscale and unscale[-1].gradients is not None and not _same(unscale[-1].gradients, accumulated):
        return failed(
            "gradients_changed_before_unscale",
            "the gradients were changed (clipped, decayed, replaced) while they were still multiplied by "
            f"the loss scale, so a threshold meant for true gradients acted on values {window.scale:g} "
            "times larger",
            "call scaler.unscale_(optimizer) first, then change the gradients, then scaler.step(optimizer)",
        )
    unscaled = window.called("unscaled")
    reference = unscaled[-1].gradients if unscaled else accumulated
    if reference is not None and not _same(given, reference):
        return failed(
            "gradients_changed",
            "the gradients were changed between backward and the step, which this exercise does not ask for",
            "apply the gradients as they are",
        )
    return None


def _same(a: Tensor, b: Tensor) -> bool:
    return bool(torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0)))


def _clipping(window: Window) -> Finding | None:
    """Name the mistake in clipping to ``max_norm``."""
    max_norm, true = window.run.problem.max_norm, window.mean_gradient
    if max_norm is None or torch.equal(window.after, window.before):
        return None
    norm, applied_norm = float(true.norm()), float(window.applied.norm())
    if window.scale > 1 and _clipped_while_scaled(window) and applied_norm < 0.5 * min(norm, max_norm):
        return _clipped_before_unscale(window, applied_norm)
    if window.scale > 1 and _is(applied_norm * window.scale, norm):
        return _unscaled_twice(window)
    cosine = float(window.applied @ true) / (norm * applied_norm)
    if cosine < 0.99:
        return failed(
            "clipped_piecewise",
            "clipping changed the direction of the gradient: it was applied to single values or parameter "
            "by parameter",
            "clip all parameters together by their total norm: "
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
        )
    if _is(applied_norm, norm):
        return _never_clipped(window, norm)
    return failed(
        "wrong_max_norm",
        f"a gradient of norm {norm:.4g} was applied with norm {applied_norm:.4g}, where "
        f"max_norm={max_norm:g} asks for {min(norm, max_norm):.4g}",
        "pass max_norm on to clip_grad_norm_, which leaves gradients below it as they are",
    )


def _clipped_while_scaled(window: Window) -> bool:
    unscale, accumulated = window.called("unscale_"), window.accumulated
    found = unscale[-1].gradients if unscale else None
    return found is not None and accumulated is not None and not _same(found, accumulated)


def _clipped_before_unscale(window: Window, applied_norm: float) -> Finding:
    how = (
        "before scaler.unscale_(optimizer)"
        if window.called("unscale_", directly=True)
        else "without scaler.unscale_"
    )
    return failed(
        "clip_before_unscale",
        f"the gradients were clipped {how}, while they were still multiplied by {window.scale:g}: the "
        f"update has norm {applied_norm:.3g}, which is max_norm divided by the scale",
        "call scaler.unscale_(optimizer), then clip, then scaler.step(optimizer)",
    )


def _never_clipped(window: Window, norm: float) -> Finding:
    given, later = (
        window.gradients_at_step,
        [c.gradients for c in window.called("update", "zero_grad", "stepped")],
    )
    if given is not None and any(g is not None and g.any() and not _same(g, given) for g in later):
        return failed(
            "clip_after_step",
            "the gradients were clipped after the step, which had already applied a gradient of norm "
            f"{norm:.4g}",
            "clip between scaler.unscale_(optimizer) and scaler.step(optimizer)",
        )
    return failed(
        "not_clipped",
        f"a gradient of norm {norm:.4g} was applied although max_norm is {window.run.problem.max_norm:g}: "
        "nothing was clipped",
        "call torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm) after scaler.unscale_(optimizer)",
    )


def _partial(window: Window) -> Finding | None:
    """Recognise an update that reached only some of the parameters."""
    start, untouched = 0, 0
    change = window.after - window.before
    for parameter in window.run.parameters:
        untouched += not bool(change[start : start + parameter.numel()].any())
        start += parameter.numel()
    if untouched == 0:
        return None
    return failed(
        "parameters_left_out",
        f"{untouched} of the {len(window.run.parameters)} parameters never changed",
        "train all parameters of the model with the optimizer that was passed in",
    )


def _unexplained(window: Window) -> Finding:
    applied, wanted = window.applied, window.wanted(window.mean_gradient)
    if not applied.isfinite().all():
        return failed(
            "weights_not_finite",
            "the weights became inf or NaN although no gradient overflowed",
            "print the largest gradient right before the step",
        )
    difference = float((applied - wanted).norm() / wanted.norm())
    return failed(
        "wrong_update",
        "the weights after a step differ from plain SGD on the true gradient: the applied gradient is "
        f"{difference:.1%} off",
        "compare with the loop in float32: forward, backward, one step, zero_grad, and nothing in between",
    )


_EXPLANATIONS: list[Callable[[Window], Finding | None]] = [
    _stepped_twice,
    _direct_step,
    _clipping,
    _accumulation,
    _no_step,
    _mostly_vanished,
    _wrong_factor,
    _partial,
    _gradients_changed,
]


def _overflow(window: Window) -> Finding | None:
    """A window whose gradients overflowed must leave the weights alone."""
    if not any(step.moved for step in window.steps):
        return None
    if window.given_up and not window.overflowed and bool(window.after.isfinite().all()):
        return None  # a batch was left out of the window because its loss was not finite
    given = window.gradients_at_step
    if given is not None and given.isfinite().all():
        return _hidden_overflow()
    if window.called("optimizer.step", directly=True):
        return failed(
            "step_bypasses_scaler",
            "a batch overflowed, and its inf or NaN gradients were applied: optimizer.step() was called "
            "directly, so nothing skipped the step",
            "call scaler.step(optimizer), also after scaler.unscale_(optimizer): it skips the step when a "
            "gradient is not finite",
        )
    return failed(
        "overflow_not_skipped",
        "a batch overflowed, and the weights changed all the same: they are now inf or NaN, or moved by "
        "garbage",
        "call scaler.step(optimizer), which leaves the weights alone when a gradient is not finite",
    )


def _hidden_overflow() -> Finding:
    return failed(
        "overflow_hidden",
        "inf and NaN were removed from the gradients (nan_to_num, clip_grad_value_, a mask) before the "
        "scaler could see them: it took the step and did not lower its scale",
        "leave non-finite gradients alone until scaler.unscale_ or scaler.step has checked them",
    )


def _scale_after_overflow(everything: list[Window]) -> Finding | None:
    """After an overflow the scale must be lower, and stay so until the same scaler raises it."""
    for window, later in itertools.pairwise(everything):
        if window.overflowed and later.last.backwards and not later.seed < window.seed:
            return _why_no_backoff(window, later)
        if later.seed > window.seed and _scalers(window) and _scalers(later) - _scalers(window):
            return _recreated()
    return None


def _scalers(window: Window) -> set[int]:
    return {call.owner for call in window.called("scale")}


def _recreated() -> Finding:
    return failed(
        "scaler_recreated",
        "a new GradScaler was made during training: its scale starts at the initial value again, and what "
        "was learned from overflows is forgotten",
        "make one GradScaler before the first epoch",
    )


def _why_no_backoff(window: Window, later: Window) -> Finding:
    if _scalers(later) - _scalers(window):
        return _recreated()
    given = [c.gradients for c in window.called("unscale_", "optimizer.step") if c.gradients is not None]
    if given and given[-1].isfinite().all():
        return _hidden_overflow()
    return failed(
        "scale_never_lowered",
        f"a batch overflowed at scale {window.seed:g}, and the next one was scaled by {later.seed:g}: if "
        "the scale does not fall after an overflow, every later step may be skipped",
        "call scaler.update() without arguments in every iteration",
    )


def _optimizer_untouched(run: Run) -> Finding | None:
    own = any(call.owner == run.optimizer_id for call in run.calls("optimizer.step"))
    return None if own else _optimizer_unused()


def _optimizer_unused() -> Finding:
    return failed(
        "optimizer_unused",
        "the optimizer that was passed in never stepped; its settings, and any schedule on them, were "
        "ignored",
        "step the optimizer you were given, with scaler.step(optimizer)",
    )
