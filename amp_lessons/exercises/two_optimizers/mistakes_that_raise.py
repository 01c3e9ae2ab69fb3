"""What an exception in a GAN's step means."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, first
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.two_optimizers.mistakes_in_precision import another_scaler, precision
from amp_lessons.exercises.two_optimizers.testbed import GanCall, optimizer_of
from amp_lessons.formats.dtypes import dtype_name

ONE_UPDATE = (
    "step both optimizers, then call scaler.update() once; or finish scale, backward, step, update for one "
    "network first"
)
ONCE_EACH = "train each network once per call: one backward pass for its loss, one scaler.step"
SCALE_BOTH = "scale both losses: scaler.scale(loss).backward()"


def explained(call: GanCall) -> Finding:
    """Turn the exception that ended a step into a finding that names the mistake behind it."""
    return first(_meanings(call)) or common_findings.raised(call.outcome, f"in {dtype_name(call.dtype)}")


def _meanings(call: GanCall) -> Iterator[Finding]:
    text = call.outcome.error_text
    if "same dtype" in text:  # half and float tensors meet where autocast is off
        yield from precision(call)
        yield catalogue.precision.no_autocast(
            "a network, given what another had computed in 16 bits,", dtype_name(call.dtype)
        )
    if "step() has already been called since the last update" in text:
        yield from _stepped_twice(call)
    if "No inf checks were recorded for this optimizer" in text:
        yield from another_scaler(call)
        yield _gradients_missing(call)
    place = f" [PyTorch noticed in {call.outcome.where}]" if call.outcome.where else ""
    for fragment, finding in _ERRORS.items():
        if fragment in text:
            yield replace(finding, message=finding.message + place)


def _stepped_twice(call: GanCall) -> Iterator[Finding]:
    stepped = [each.optimizer for each in call.calls("scaler.step")]
    for part, optimizer in call.optimizers.items():
        if stepped.count(optimizer) > 1:
            yield catalogue.steps.double_step(f"scaler.step({optimizer_of(part)}) was called", hint=ONCE_EACH)


def _gradients_missing(call: GanCall) -> Finding:
    stepped = call.calls("scaler.step")[-1].optimizer
    part = "discriminator" if stepped == call.optimizers["discriminator"] else "generator"
    why = (
        "the fake images of its loss were detached or made under no_grad, so backward ended before it"
        if part == "generator"
        else "its loss took part in no backward pass before this step"
    )
    return failed(
        "gradients_missing",
        f"scaler.step({optimizer_of(part)}) found no gradients in the {part}: {why}, the step came too "
        "early, or the gradients were cleared again",
        "detach the fake images in the discriminator's loss only; after each backward, step the optimizer of "
        "the network whose loss it was",
    )


_ERRORS = {
    "unsafe to autocast": failed(
        "bce_under_autocast",
        "binary_cross_entropy takes probabilities, whose gradients fp16 cannot hold; CUDA's autocast "
        "refuses it with this error",
        "drop the sigmoid and use torch.nn.functional.binary_cross_entropy_with_logits",
    ),
    "_scale is None": catalogue.steps.loss_not_scaled(
        "scaler.step was called, but nothing had been multiplied by scaler.scale", hint=SCALE_BOTH
    ),
    "step() has already been called since the last update": catalogue.scaler.no_update(ONE_UPDATE),
    "unscale_() is being called after step": catalogue.scaler.no_update(ONE_UPDATE),
    "No inf checks were recorded prior to update": catalogue.scaler.update_without_step(
        "without a scaler.step(optimizer) before it", ONE_UPDATE
    ),
    "backward through the graph a second time": catalogue.steps.graph_used_twice(
        "the fake images still carried the generator's graph, or one discriminator output served both losses",
        "give the discriminator fake.detach() for its own loss, and run discriminator(fake) again for the "
        "generator's",
    ),
    "modified by an inplace operation": failed(
        "graph_used_after_step",
        "the generator's backward needs discriminator weights that a step has changed since the forward pass",
        "compute the generator's loss after the discriminator's step, or do both backward passes before "
        "either step",
    ),
    "Attempting to unscale FP16 gradients": catalogue.precision.half_parameters(),
    "does not require grad": catalogue.steps.no_graph(),
    "outputs must be a Tensor or an iterable": catalogue.steps.scale_needs_a_tensor(),
}
