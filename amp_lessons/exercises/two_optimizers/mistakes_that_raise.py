"""What an exception in a GAN's step means."""

from __future__ import annotations

import torch

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.training_loops.mistakes import exceptions
from amp_lessons.exercises.two_optimizers.mistakes_in_precision import another_scaler, precision
from amp_lessons.exercises.two_optimizers.testbed import GanCall


def explained(call: GanCall) -> Finding:
    """Turn the exception that ended a step into a finding that names the mistake behind it."""
    text = call.outcome.error_text
    if "same dtype" in text:  # half and float tensors meet where autocast is off
        return precision(call) or failed(
            "no_autocast",
            "float32 weights met a 16-bit tensor: a network ran outside autocast, on what another had "
            "computed inside",
            "run every forward pass and loss inside with torch.autocast(device_type, dtype=dtype):",
        )
    if "No inf checks were recorded for this optimizer" in text:
        return another_scaler(call) or _gradients_missing(call)
    for fragment, finding in _ERRORS.items():
        if fragment in text:
            place = f" [PyTorch noticed in {call.outcome.where}]" if call.outcome.where else ""
            return failed(finding.code, finding.message + place, finding.hint)
    return common_findings.raised(
        call.outcome, "in float16" if call.dtype == torch.float16 else "in bfloat16"
    )


ONE_UPDATE = (
    "step both optimizers, then call scaler.update() once; or finish scale, backward, step, update for one "
    "network first"
)
_ERRORS = {
    "unsafe to autocast": failed(
        "bce_under_autocast",
        "binary_cross_entropy takes probabilities, whose gradients float16 cannot hold; CUDA's autocast "
        "refuses it with this error",
        "drop the sigmoid and use torch.nn.functional.binary_cross_entropy_with_logits",
    ),
    "_scale is None": failed(
        "loss_not_scaled",
        "scaler.step was called, but no loss had been multiplied by scaler.scale before its backward",
        "scale both losses: scaler.scale(loss).backward()",
    ),
    "step() has already been called since the last update": failed(
        "no_update", "scaler.update() was not called: the scaler cannot start another iteration", ONE_UPDATE
    ),
    "unscale_() is being called after step": failed(
        "no_update", "scaler.update() was not called: the scaler cannot start another iteration", ONE_UPDATE
    ),
    "No inf checks were recorded prior to update": failed(
        "update_without_step",
        "scaler.update() was called without a scaler.step(optimizer) before it: there is no inf check to "
        "learn from",
        ONE_UPDATE,
    ),
    "backward through the graph a second time": failed(
        "graph_used_twice",
        "the second backward went through the graph of the first: the fake images still carried the "
        "generator's graph, or one discriminator output served both losses",
        "give the discriminator fake.detach() for its own loss, and run discriminator(fake) again for the "
        "generator's",
    ),
    "modified by an inplace operation": failed(
        "graph_used_after_step",
        "the generator's backward needs discriminator weights that a step has changed since the forward pass",
        "compute the generator's loss after the discriminator's step, or do both backward passes before "
        "either step",
    ),
    "Attempting to unscale FP16 gradients": exceptions.half_parameters(),
    "does not require grad": exceptions.no_graph(),
    "outputs must be a Tensor or an iterable": failed(
        "scale_needs_a_tensor",
        "scaler.scale() was given something that is not a tensor",
        "write scaler.scale(loss).backward()",
    ),
}


def _gradients_missing(call: GanCall) -> Finding:
    stepped = call.calls("scaler.step")[-1].optimizer
    part = "discriminator" if stepped == call.optimizers["discriminator"] else "generator"
    optimizer = f"opt_{part[0]}"
    why = (
        "the fake images of its loss were detached or made under no_grad, so backward ended before it"
        if part == "generator"
        else "its loss took part in no backward pass before this step"
    )
    return failed(
        "gradients_missing",
        f"scaler.step({optimizer}) found no gradients in the {part}: {why}, the step came too early, or the "
        "gradients were cleared again",
        "detach the fake images in the discriminator's loss only; after each backward, step the optimizer of "
        "the network whose loss it was",
    )
