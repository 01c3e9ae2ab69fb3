"""In which dtype forward, loss and backward ran: where autocast starts and stops."""

from __future__ import annotations

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.training_loops.mistakes import exceptions
from amp_lessons.exercises.training_loops.testbed import Run
from amp_lessons.formats.dtypes import dtype_name

# mistakes beside which those in scaling and stepping can still be told
WITHOUT_EFFECT_ON_UPDATES = ("backward_in_autocast", "evaluation_mode")


def first_mistake(run: Run) -> Finding | None:
    """Return the root cause among the mistakes of precision, None when there is none."""
    for look in (
        _loss_function_unused,
        _parameters_in_half,
        _another_model,
        _evaluation_mode,
        _forward_without_autocast,
        _forward_in_another_dtype,
        _stale_weights,
        _scaled_too_early,
        _loss_in_half,
        _backward_under_autocast,
    ):
        finding = look(run)
        if finding is not None:
            return finding
    return None


def _loss_function_unused(run: Run) -> Finding | None:
    if run.steps:
        return None
    if run.tape.losses_without_graph:
        return exceptions.no_graph()
    return failed(
        "loss_fn_unused",
        "loss_fn was never called with gradients enabled: nothing was trained with it",
        "compute loss = loss_fn(model(inputs), targets) for every batch of the loader",
    )


def _parameters_in_half(run: Run) -> Finding | None:
    forwards = [step.forward for step in run.steps if step.forward]
    converted = any(f.own_model and f.parameter_dtype != torch.float32 for f in forwards)
    return (
        exceptions.half_parameters()
        if converted or any(p.dtype != torch.float32 for p in run.parameters)
        else None
    )


def _another_model(run: Run) -> Finding | None:
    forwards = [step.forward for step in run.steps if step.forward]
    if (
        forwards
        and not any(f.own_model for f in forwards)
        and torch.equal(run.start_weights, run.end_weights)
    ):
        return failed(
            "model_not_trained",
            "a copy of the model was trained: the weights of the model that was passed in never changed",
            "call model(inputs) on the model you were given",
        )
    return None


def _evaluation_mode(run: Run) -> Finding | None:
    if all(step.forward is None or step.forward.training for step in run.steps):
        return None
    return failed(
        "evaluation_mode",
        "the model was trained in evaluation mode: dropout and batch norm behave as if no training took "
        "place",
        "leave the model in training mode, or call model.train() before the loop",
    )


def _forward_without_autocast(run: Run) -> Finding | None:
    forwards = [step.forward for step in run.steps if step.forward]
    without = sum(forward.autocast_dtype is None for forward in forwards)
    if without == 0:
        return None
    which = "the forward pass" if without == len(forwards) else f"{without} of {len(forwards)} forward passes"
    return failed(
        "no_autocast",
        f"{which} ran in fp32: autocast was not enabled while model(inputs) ran, so nothing is gained "
        f"from {dtype_name(run.problem.dtype)}",
        "run model(inputs) and loss_fn inside with torch.autocast(device_type, dtype=dtype):",
    )


def _forward_in_another_dtype(run: Run) -> Finding | None:
    asked = run.problem.dtype
    for step in run.steps:
        seen = step.forward.autocast_dtype if step.forward else None
        if seen is not None and seen != asked:
            return failed(
                "wrong_autocast_dtype",
                f"autocast ran in {dtype_name(seen)} although dtype={asked} was asked for",
                "pass the argument on: torch.autocast(device_type, dtype=dtype)",
            )
    return None


def _stale_weights(run: Run) -> Finding | None:
    if not any(step.forward and step.forward.stale for step in run.steps):
        return None
    return failed(
        "one_big_autocast",
        "the forward pass used old weights: one autocast context stays open over several optimizer steps, "
        "and its cache of 16-bit weights is emptied only when the outermost context ends",
        "enter autocast anew in every iteration, around forward and loss only",
    )


def _scaled_too_early(run: Run) -> Finding | None:
    if all(call.elements == 1 for call in run.calls("scale")):
        return None
    return failed(
        "outputs_scaled",
        "scaler.scale was called on a tensor of many numbers (the model's outputs, say), not on the loss: "
        "a loss of scaled outputs is another function, and its gradients are not the scaled ones",
        "compute the loss first, then call scaler.scale(loss).backward()",
    )


def _loss_in_half(run: Run) -> Finding | None:
    scaled_dtypes = {call.dtype for call in run.calls("scale") if call.dtype is not None}
    loss_dtypes = {step.loss.dtype for step in run.steps}
    halves = {torch.float16, torch.bfloat16}
    if not any(step.loss.autocast for step in run.steps) and loss_dtypes & halves:
        return failed(
            "loss_outside_autocast",
            f"the loss was computed outside autocast on {dtype_name(run.problem.dtype)} outputs, so it is "
            f"itself {dtype_name(run.problem.dtype)}: it loses digits, and in fp16 the scale 65536 "
            "overflows at the very start of backward",
            "call loss_fn inside the autocast context, which computes losses in fp32, or on outputs.float()",
        )
    half = (loss_dtypes | scaled_dtypes) & halves
    if half:
        return failed(
            "loss_in_half",
            f"the loss was cast to {dtype_name(half.pop())} before backward: fp16 ends at 65504, so the "
            "scale 65536 becomes inf",
            "keep the loss in fp32, as loss_fn returns it inside autocast",
        )
    return None


def _backward_under_autocast(run: Run) -> Finding | None:
    inside = [backward for step in run.steps for backward in step.backwards if backward.autocast]
    if not inside:
        return None
    return failed(
        "backward_in_autocast",
        "backward ran inside the autocast context: the backward pass of operations kept in fp32 is cast "
        f"to {dtype_name(run.problem.dtype)} there, and PyTorch advises against it",
        "leave the with block after the loss; backward, step and update belong outside",
    )
