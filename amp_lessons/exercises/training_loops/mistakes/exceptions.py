"""What PyTorch's exceptions mean for a training loop: which mistake in the loop led to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain

import torch

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.exercises.watching.tape_there import Call, flat


def explained(run: Run, when: str = "") -> Finding:
    """Turn the exception that ended ``run`` into a finding that names the mistake behind it."""
    finding = first(chain(_left_behind(run), _meanings(run), _at_an_overflow(run)))
    if finding is None:
        return common_findings.raised(run.outcome, f"({when})" if when else "")
    place = f" [PyTorch noticed in {run.outcome.where}]" if run.outcome.where else ""
    return replace(finding, message=f"{finding.message}{f', {when}' if when else ''}{place}")


def _left_behind(run: Run) -> Iterator[Finding]:
    """Explain whatever exception by the state that led to it."""
    if any(parameter.dtype != torch.float32 for parameter in run.parameters):
        yield catalogue.precision.half_parameters()


def _meanings(run: Run) -> Iterator[Finding]:
    """Explain the exception by its text."""
    return (meaning(run) for fragment, meaning in _MEANINGS if fragment in run.outcome.error_text)


def _at_an_overflow(run: Run) -> Iterator[Finding]:
    """Recognise code that gives up at a batch that overflowed."""
    if run.problem.poisoned and run.steps and run.steps[-1].batch in dict(run.problem.poisoned):
        yield catalogue.scaler.stops_at_overflow(common_findings.exception(run.outcome))


def _this_iteration(run: Run) -> list[Call]:
    return list(run.steps[-1].calls) if run.steps else [e for e in run.tape.events if isinstance(e, Call)]


def _names(run: Run) -> list[str]:
    """List what this iteration called itself, without what ``scaler.step`` did."""
    return [call.name for call in _this_iteration(run) if not call.in_step]


def _previous_names(run: Run) -> list[str]:
    return [c.name for c in run.steps[-2].calls if not c.in_step] if len(run.steps) > 1 else []


def _unscaled_again(run: Run) -> Finding:
    names, before = _names(run), _previous_names(run)
    if run.problem.accumulation_steps > 1 and "unscale_" in before and "scaler.step" not in before:
        return catalogue.scaler.update_every_batch()
    if names.count("unscale_") > 1 or ("unscale_" in names and "update" in before):
        return catalogue.steps.unscale_twice()
    return _no_update(run)


def _stepped_again(run: Run) -> Finding:
    if _names(run).count("scaler.step") > 1:
        return catalogue.steps.double_step("scaler.step(optimizer) was called")
    return _no_update(run)


def _no_update(run: Run) -> Finding:
    if run.problem.accumulation_steps == 1:
        return catalogue.scaler.no_update()
    return catalogue.scaler.no_update(
        "call scaler.update() once per window, after scaler.step(optimizer): not for every batch, for all "
        "gradients of a window need one scale",
        "a window",
    )


def _unscaled_after_step(run: Run) -> Finding:
    if "scaler.step" in _names(run):
        return catalogue.steps.unscale_after_step()
    return _no_update(run)


def _no_gradients_to_check(run: Run) -> Finding:
    backward = bool(run.steps and run.steps[-1].backwards)
    if backward and "scaler.step" in _names(run)[:-1]:
        return catalogue.steps.step_without_backward()
    if backward and "zero_grad" in _names(run):
        return catalogue.steps.gradients_cleared()
    if not run.steps and run.tape.losses_without_graph:
        return catalogue.steps.no_graph()
    if not backward:
        return _no_backward(run)
    return catalogue.scaler.no_gradients()


def _no_backward(run: Run) -> Finding:
    if run.steps and not run.steps[-1].loss_is_finite:
        return catalogue.steps.step_without_backward(left_out=True)
    if any(call.name == "unscale_" for call in _this_iteration(run)):
        return catalogue.steps.unscale_without_gradients()
    return catalogue.steps.step_before_backward()


def _graph_gone(run: Run) -> Finding:
    step = run.steps[-1] if run.steps else None
    if step is None or not step.backwards or step.backwards[0].gradients:
        return catalogue.steps.backward_twice()
    return catalogue.steps.graph_used_twice(
        "torch.autograd.grad, for a gradient penalty say, had gone through the loss before, and freed its "
        "graph",
        "this exercise asks for the gradient of the loss alone; a penalty needs create_graph=True, which "
        "keeps the graph",
    )


def _nothing_to_update_from(run: Run) -> Finding:
    names = _names(run)
    if names.count("update") > 1:
        return catalogue.scaler.update_twice()
    if "optimizer.step" in names:
        return _stepped_past_the_scaler(run)
    if run.problem.accumulation_steps > 1 and "scaler.step" not in names:
        return catalogue.scaler.update_every_batch()
    if "scaler.step" not in names and run.calls("scaler.step"):
        return catalogue.scaler.update_without_step()
    return catalogue.scaler.update_before_step()


def _stepped_past_the_scaler(run: Run) -> Finding:
    """Distinguish three steps past the scaler by the gradients that they found."""
    step = next(call for call in reversed(_this_iteration(run)) if call.name == "optimizer.step")
    passes = run.steps[-1].backwards_into_grad if run.steps else []
    if step.gradients is None or not passes:
        return stepped_directly(run)
    if not step.gradients.isfinite().all():
        return catalogue.scaler.step_bypasses_scaler("optimizer.step() was called directly")
    left = flat(run.parameters, [passes[-1].gradients.get(i) for i in range(len(run.parameters))])
    if not bool(step.gradients.norm() < left.norm() / 4):
        return stepped_directly(run)
    return catalogue.scaler.update_without_step(
        "after optimizer.step(), of which the scaler knows nothing: the gradients had been divided by hand",
        "leave the division to scaler.unscale_(optimizer), which also looks for inf, and the step to "
        "scaler.step(optimizer)",
    )


def stepped_directly(run: Run) -> Finding:
    """Say that ``optimizer.step()`` was called on gradients that are still scaled."""
    return catalogue.steps.optimizer_step_direct(
        next((call.scale for call in run.calls("scale") if call.enabled), None)
    )


def _never_scaled(run: Run) -> Finding:
    start = run.steps[-1].start_gradient if run.steps else None
    if start is None:
        return _no_backward(run)
    if start > 1:
        return catalogue.steps.scaled_by_hand(start)
    return catalogue.steps.loss_not_scaled(
        "scaler.scale(loss) was never called",
        "gradients below 2⁻²⁵ vanish in fp16, and the scaler has no scale to undo",
    )


def _cast_by_hand(run: Run) -> Finding:
    return failed(
        "cast_by_hand",
        "an operation met a 16-bit and a 32-bit tensor: something was cast by hand where autocast is off",
        "remove the casts by hand and run forward and loss inside torch.autocast",
    )


def _old_autocast(run: Run) -> Finding:
    return failed(
        "old_autocast",
        "torch.cuda.amp.autocast is the old spelling for CUDA only, and takes no device_type",
        "write torch.autocast(device_type, dtype=dtype)",
    )


def _clip_raises(run: Run) -> Finding:
    return catalogue.scaler.clip_raises_on_overflow()


_MEANINGS: list[tuple[str, Callable[[Run], Finding]]] = [
    ("unscale_() has already been called", _unscaled_again),
    ("step() has already been called since the last update", _stepped_again),
    ("unscale_() is being called after step", _unscaled_after_step),
    ("No inf checks were recorded for this optimizer", _no_gradients_to_check),
    ("No inf checks were recorded prior to update", _nothing_to_update_from),
    ("_scale is None", _never_scaled),
    ("Attempting to unscale FP16 gradients", lambda run: catalogue.precision.half_parameters()),
    ("element 0 of tensors does not require grad", lambda run: catalogue.steps.no_graph()),
    ("backward through the graph a second time", _graph_gone),
    ("outputs must be a Tensor or an iterable", lambda run: catalogue.steps.scale_needs_a_tensor()),
    ("'float' object has no attribute 'backward'", lambda run: catalogue.steps.no_graph()),
    ("unexpected keyword argument 'device_type'", _old_autocast),
    ("non-finite, so it cannot be clipped", _clip_raises),
    ("Closure use is not currently supported", lambda run: catalogue.scaler.closure()),
    ("to have the same dtype", _cast_by_hand),
    ("must have the same dtype", _cast_by_hand),
]
