"""What PyTorch's exceptions mean for a training loop: which mistake in the loop led to them."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.audit.watching.tape import Call
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.training_loops.testbed import Run


def explain(run: Run, doing: str = "") -> Finding:
    """Turn the exception that ended ``run`` into a finding that names the mistake behind it."""
    finding = _what_it_left(run) or _meaning(run) or _at_an_overflow(run)
    if finding is None:
        return common_findings.raised(run.outcome, f"({doing})" if doing else "")
    place = f" [PyTorch noticed in {run.outcome.where}]" if run.outcome.where else ""
    context = f", {doing}" if doing else ""
    return failed(finding.code, f"{finding.message}{context}{place}", finding.hint)


def _meaning(run: Run) -> Finding | None:
    text = run.outcome.error_text
    found = (meaning(run) for fragment, meaning in _MEANINGS if fragment in text)
    return next((finding for finding in found if finding is not None), None)


def _what_it_left(run: Run) -> Finding | None:
    """Explain whatever exception by the state that led to it."""
    return half_parameters() if any(p.dtype != torch.float32 for p in run.parameters) else None


def _at_an_overflow(run: Run) -> Finding | None:
    """Recognise code that gives up at a batch that overflowed."""
    if run.problem.poisoned and run.steps and run.steps[-1].batch in dict(run.problem.poisoned):
        return stops_at_overflow(common_findings.exception(run.outcome))
    return None


def stops_at_overflow(exception: str = "") -> Finding:
    """A batch that overflows ends the training."""
    return failed(
        "stops_at_overflow",
        "training ended at a batch that overflowed"
        + (f" ({exception})" if exception else "")
        + "; an overflow is an everyday event in float16, after which the scaler lowers its scale",
        "let scaler.step skip that batch, call scaler.update() and go on",
    )


def _this_iteration(run: Run) -> list[Call]:
    return list(run.steps[-1].calls) if run.steps else [e for e in run.tape.events if isinstance(e, Call)]


def _names(run: Run) -> list[str]:
    """List what this iteration called itself, without what ``scaler.step`` did."""
    return [call.name for call in _this_iteration(run) if not call.in_step]


def _previous_names(run: Run) -> list[str]:
    return [c.name for c in run.steps[-2].calls if not c.in_step] if len(run.steps) > 1 else []


def no_update(run: Run) -> Finding:
    """scaler.update() is missing, always or after an overflow."""
    before = _previous_names(run)
    if "update" not in before and (run.calls("update") or "scaler.step" not in before):
        return failed(
            "no_update",
            "one iteration ended without scaler.update(): the scaler still holds the inf check of that "
            "iteration and refuses the next; after an overflow it would never learn that its scale is too "
            "large",
            "reach scaler.update() in every iteration, also when you skip the step yourself",
        )
    return failed(
        "no_update",
        "scaler.update() was not called after scaler.step(optimizer): the scaler cannot start another "
        "iteration, and its scale never adapts",
        "call scaler.update() once per iteration, after scaler.step(optimizer)",
    )


def update_every_batch() -> Finding:
    """What belongs to a window of accumulated batches is done for each batch."""
    return failed(
        "update_every_batch",
        "scaler.unscale_() or scaler.update() was called for every batch of a window: the gradients that are "
        "added up there must all be multiplied by one scale, until the step",
        "unscale_, step and update belong together, once per window",
    )


def _unscaled_again(run: Run) -> Finding:
    names, before = _names(run), _previous_names(run)
    if run.problem.accumulation_steps > 1 and "unscale_" in before and "scaler.step" not in before:
        return update_every_batch()
    if names.count("unscale_") > 1 or ("unscale_" in names and "update" in before):
        return failed(
            "unscale_twice",
            "scaler.unscale_(optimizer) was called twice in one iteration: the second would divide the "
            "gradients by the scale again, so PyTorch refuses",
            "call scaler.unscale_(optimizer) once, after backward and before clipping; scaler.step will "
            "not repeat it",
        )
    return no_update(run)


def _stepped_again(run: Run) -> Finding:
    if _names(run).count("scaler.step") > 1:
        return failed(
            "double_step",
            "scaler.step(optimizer) was called twice in one iteration",
            "one scaler.step(optimizer) per iteration",
        )
    return no_update(run)


def _unscaled_after_step(run: Run) -> Finding:
    if "scaler.step" in _names(run):
        return failed(
            "unscale_after_step",
            "scaler.unscale_(optimizer) was called after scaler.step(optimizer) in the same iteration: the "
            "step had already unscaled the gradients and used them",
            "the order is scale, backward, unscale_, (clip,) step, update",
        )
    return no_update(run)


def _no_gradients_to_check(run: Run) -> Finding:
    names = _names(run)
    backward = bool(run.steps and run.steps[-1].backwards)
    if backward and "zero_grad" in names:
        return gradients_cleared()
    if not run.steps and run.tape.losses_without_graph:
        return no_graph()
    if not backward:
        return step_before_backward()
    return failed(
        "no_gradients",
        "scaler.step(optimizer) found no gradient on any parameter of the optimizer: backward filled others",
        "train the model that was passed in, with the optimizer that was passed in",
    )


def gradients_cleared() -> Finding:
    """zero_grad stands between backward and step."""
    return failed(
        "gradients_cleared",
        "zero_grad() was called between backward and the optimizer step: the step had no gradient left to "
        "apply",
        "call optimizer.zero_grad() before the forward pass, or after the step",
    )


def step_before_backward() -> Finding:
    """The step comes before the backward pass."""
    return failed(
        "step_before_backward",
        "scaler.step(optimizer) was called before backward had produced any gradient",
        "the order is forward, scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update()",
    )


def _nothing_to_update_from(run: Run) -> Finding:
    names = _names(run)
    if names.count("update") > 1:
        return failed(
            "update_twice",
            "scaler.update() was called twice in one iteration: the second has no inf check to learn from",
            "one scaler.update() per iteration, after the step",
        )
    if "optimizer.step" in names:
        return optimizer_step_direct(run)
    if run.problem.accumulation_steps > 1 and "scaler.step" not in names:
        return update_every_batch()
    if "scaler.step" not in names and run.calls("scaler.step"):
        return failed(
            "update_without_step",
            "scaler.update() was called in an iteration that left scaler.step(optimizer) out (because its "
            "loss was not finite, say): no gradient had been checked for inf, so there is nothing to learn",
            "call scaler.step(optimizer) in every iteration: it leaves the step out by itself when a "
            "gradient is not finite",
        )
    return failed(
        "update_before_step",
        "scaler.update() was called before scaler.step(optimizer): no gradient had been checked for inf yet",
        "call scaler.step(optimizer) first, then scaler.update()",
    )


def optimizer_step_direct(run: Run) -> Finding:
    """optimizer.step() is called on gradients that are still scaled."""
    scale = next((call.scale for call in run.calls("scale") if call.enabled), math.nan)
    factor = f" {scale:g} times" if math.isfinite(scale) else ""
    return failed(
        "optimizer_step_direct",
        f"optimizer.step() was called directly: it applied gradients that are still{factor} too large (the "
        "loss scale), and nothing checked them for inf",
        "call scaler.step(optimizer) instead: it unscales, checks for inf and only then steps",
    )


def _never_scaled(run: Run) -> Finding:
    start = run.steps[-1].start_gradient if run.steps else None
    if start is not None and start > 1:
        return failed(
            "scaled_by_hand",
            f"the loss was multiplied by {start:g} by hand: scaler.scale was never called, so the scaler "
            "does not know by what to divide the gradients",
            "call scaler.scale(loss).backward()",
        )
    if start is not None:
        return failed(
            "loss_not_scaled",
            "backward started from the unscaled loss: scaler.scale(loss) was never called, so gradients "
            "below fp16's smallest number vanish, and the scaler has no scale to undo",
            "call scaler.scale(loss).backward()",
        )
    return step_before_backward()


def half_parameters() -> Finding:
    """The parameters themselves are in 16 bits."""
    return failed(
        "half_parameters",
        "the model's parameters were converted to a 16-bit dtype: small updates to them are rounded away, "
        "and the scaler refuses their gradients",
        "leave the parameters in float32; autocast casts what an operation needs",
    )


def no_graph() -> Finding:
    """The loss has no graph to go back through."""
    return failed(
        "no_graph",
        "backward had nothing to go through: the loss was computed under no_grad, or detached with "
        ".detach() or .item()",
        "call backward on the tensor that loss_fn returned, computed with gradients enabled",
    )


def backward_twice() -> Finding:
    """Two backward passes through one loss."""
    return failed(
        "backward_twice",
        "backward was called twice through the same loss: every gradient is counted twice",
        "one scaler.scale(loss).backward() per batch",
    )


def losses_summed() -> Finding:
    """One backward pass for several losses."""
    return failed(
        "losses_summed",
        "the losses of several batches were added up and went through one backward pass together: the "
        "graphs of all of them were kept in memory at once",
        "call scaler.scale(loss).backward() for every batch, right after its forward pass",
    )


def _not_a_tensor(run: Run) -> Finding:
    return failed(
        "scale_needs_a_tensor",
        "scaler.scale() was given something that is not a tensor (a float from loss.item(), or what "
        "backward() returns)",
        "write scaler.scale(loss).backward(), with loss the tensor that loss_fn returned",
    )


def _dtypes_differ(run: Run) -> Finding:
    return failed(
        "cast_by_hand",
        "an operation met a 16-bit and a 32-bit tensor: something was cast by hand where autocast is off",
        "remove the casts by hand and run forward and loss inside torch.autocast",
    )


def closure() -> Finding:
    """scaler.step is given more than the optimizer."""
    return failed(
        "closure",
        "scaler.step was given a closure; the scaler cannot check gradients that the closure computes "
        "afterwards",
        "do forward and backward yourself, then scaler.step(optimizer) without a closure",
    )


def _old_autocast(run: Run) -> Finding:
    return failed(
        "old_autocast",
        "torch.cuda.amp.autocast is the old spelling for CUDA only, and takes no device_type",
        "write torch.autocast(device_type, dtype=dtype)",
    )


def _clip_raises(run: Run) -> Finding:
    return failed(
        "clip_raises_on_overflow",
        "clip_grad_norm_ was told to raise an error for non-finite gradients (error_if_nonfinite=True); in "
        "float16 they are an everyday event that the scaler deals with",
        "leave error_if_nonfinite at False: scaler.step skips that step, and scaler.update lowers the scale",
    )


_MEANINGS: list[tuple[str, Callable[[Run], Finding | None]]] = [
    ("unscale_() has already been called", _unscaled_again),
    ("step() has already been called since the last update", _stepped_again),
    ("unscale_() is being called after step", _unscaled_after_step),
    ("No inf checks were recorded for this optimizer", _no_gradients_to_check),
    ("No inf checks were recorded prior to update", _nothing_to_update_from),
    ("_scale is None", _never_scaled),
    ("Attempting to unscale FP16 gradients", lambda run: half_parameters()),
    ("element 0 of tensors does not require grad", lambda run: no_graph()),
    ("backward through the graph a second time", lambda run: backward_twice()),
    ("outputs must be a Tensor or an iterable", _not_a_tensor),
    ("'float' object has no attribute 'backward'", lambda run: no_graph()),
    ("unexpected keyword argument 'device_type'", _old_autocast),
    ("non-finite, so it cannot be clipped", _clip_raises),
    ("Closure use is not currently supported", lambda run: closure()),
    ("to have the same dtype", _dtypes_differ),
    ("must have the same dtype", _dtypes_differ),
]
