"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.catalogue.scaler import batch_left_out
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.exercises.attempt import require_none
from amp_lessons.exercises.bed import described, function, said_of
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import (
    cuda_replaced,
    fixed_device,
    float_in,
    in_place_of_cuda,
)
from amp_lessons.exercises.two_optimizers import gan_there
from amp_lessons.exercises.two_optimizers.calls import GanCall, Truth, optimizer_of, truth
from amp_lessons.exercises.two_optimizers.gan_there import GanProblem, PartBackward
from amp_lessons.exercises.two_optimizers.mistakes_in_updates import (
    ONCE_EACH,
    ONE_UPDATE,
    SCALE_BOTH,
    discriminator,
    generator,
    overflow,
    unscaled,
)
from amp_lessons.exercises.two_optimizers.tape_there import Backward, Call, Forward
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

# the scale first changes after each step, so that order shows, then only by an overflow
_PROBLEMS = (
    GanProblem(torch.float16, seed=0),
    GanProblem(torch.float16, seed=1),
    GanProblem(torch.bfloat16, seed=2),
    GanProblem(
        torch.float16,
        seed=3,
        init_scale=1024.0,
        growth_interval=1000,
        poisoned_call=1,
        poisoned_part="discriminator",
    ),
    GanProblem(
        torch.float16,
        seed=4,
        init_scale=1024.0,
        growth_interval=1000,
        poisoned_call=1,
        poisoned_part="generator",
    ),
)
_BOTH_MISS_A_STEP = ", both networks miss a step where the loss of one of them is not finite"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step train both networks a few times, and hold every call against the true gradients."""
    gan_step = function(worker, "gan_step", *[None] * 7, device_type=None, dtype=None)
    cuda: set[str] = set()
    old: set[str] = set()
    remarks: dict[Finding, None] = {}
    left_out: dict[Finding, None] = {}
    for problem in _PROBLEMS:
        told, _ = gan_step.called_by(f"{gan_there.__name__}:train", extra=(asdict(problem),))
        for each in told["calls"]:
            call = GanCall.of(each, problem.dtype)
            require_none(mistakes(call))
            if not call.poisoned:
                remarks |= dict.fromkeys(inputs_cast(call))
            elif not call.calls("scale"):
                left_out = {batch_left_out(_BOTH_MISS_A_STEP): None}
        cuda |= set(told["cuda"])
        old |= set(told["old"])
    place = in_place_of_cuda(cuda, "autocast", "cpu")
    yield passed(
        "precision", f"both networks ran under autocast{place} in the dtype asked for, backward outside it"
    )
    yield passed("discriminator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("generator", "its updates are SGD on its own loss, whatever the scale did")
    lowered = "" if left_out else ", and the scale was lowered"
    yield passed("overflow", f"an overflow in a network left its weights alone{lowered}")
    yield passed("losses", "both losses are returned, unscaled")
    yield from remarks | left_out
    yield from _remarks(cuda, old)


def _remarks(cuda: set[str], old: set[str]) -> Iterator[Finding]:
    hint = "write torch.autocast(device_type, …)"
    if cuda:
        yield cuda_replaced("device_type", "PyTorch would only warn and switch autocast off", hint)
        return
    for name in sorted(old):
        yield fixed_device(f"{name} names one device, whatever device_type says", hint)


# --- what is wrong with one step of a GAN, root cause first


def mistakes(call: GanCall) -> Iterator[Finding]:
    """Find the mistakes of one call, root causes first."""
    if call.raised is not None:
        yield explained(call)
    yield from precision(call)
    yield from another_scaler(call)
    if call.poisoned:
        yield from overflow(call)
        return
    judged_by = [truth(call, call.after.discriminator), truth(call, call.before.discriminator)]
    yield from discriminator(call, judged_by)
    yield from generator(call, judged_by)
    yield from unscaled(call)
    if call.frozen:
        yield catalogue.precision.parameters_frozen(
            "after the step", f"the {call.frozen[0]}'s parameters", "unfreeze them before the step returns"
        )
    yield from _wrong_type(call.returned)
    yield from _wrong_losses(call, judged_by)


_ADVICE = "return d_loss.item(), g_loss.item()"


def _wrong_type(returned: Any) -> Iterator[Finding]:
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        yield common_findings.wrong_return_type("two floats were", described(returned), _ADVICE)
    if not all(_is_float(value) for value in returned):
        yield failed("losses_not_floats", f"the step returned {described(returned)}, not two floats", _ADVICE)


def _is_float(value: Any) -> bool:
    return not isinstance(value, Tensor) and float_in(value) is not None


def _wrong_losses(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    d_seen, g_seen = (float_in(each) or 0.0 for each in call.returned)
    d_loss, g_losses = judged_by[0].d_loss, [right.g_loss for right in judged_by]
    if _near(d_seen, [d_loss]) and _near(g_seen, g_losses):
        return
    if _near(g_seen, [d_loss]) and _near(d_seen, g_losses):
        yield failed("losses_exchanged", "the two losses were returned in the wrong order", _ADVICE)
    if call.scale > 1 and (d_seen > 0.5 * call.scale * d_loss or g_seen > 0.5 * call.scale * g_losses[0]):
        yield failed(
            "losses_scaled", "a scaled loss was returned; it jumps whenever the scale changes", _ADVICE
        )
    yield failed(
        "wrong_losses",
        f"the step returned ({d_seen:.4g}, {g_seen:.4g}) instead of ({d_loss:.4g}, {g_losses[0]:.4g})",
        _ADVICE,
    )


def _near(seen: float, accepted: list[float]) -> bool:
    return any(math.isclose(seen, value, rel_tol=0.02) for value in accepted)


# --- in which dtype both networks ran, and with which scaler


def precision(call: GanCall) -> Iterator[Finding]:
    """Find a network outside autocast or in another dtype, stale weights, and a backward pass inside."""
    forwards = [event for event in call.events if isinstance(event, Forward)]
    if not forwards:
        yield catalogue.steps.no_graph() if call.forwards_without_graph else _nothing_trained()
    if any(forward.parameter_dtype != torch.float32 for forward in forwards):
        yield catalogue.precision.half_parameters()
    for forward in forwards:
        yield from _forward(forward, call.dtype)
    if any(forward.stale for forward in forwards):
        yield catalogue.precision.one_big_autocast("for each network's loss")
    yield from _evaluation_mode(call, forwards)
    yield from _other_noise(call, forwards)
    yield from _loss_in_half(call)
    if any(event.autocast for event in call.events if isinstance(event, Backward)):
        yield catalogue.precision.backward_in_autocast(dtype_name(call.dtype))


def _evaluation_mode(call: GanCall, forwards: list[Forward]) -> Iterator[Finding]:
    """Find a network in evaluation mode for its own loss; the discriminator may be for the generator's."""
    for forward in forwards:
        if not forward.training and (forward.part == "generator" or _same(forward.inputs, call.real)):
            yield catalogue.precision.evaluation_mode(f"while the {forward.part} was trained")


def _other_noise(call: GanCall, forwards: list[Forward]) -> Iterator[Finding]:
    seen = [forward.inputs for forward in forwards if forward.part == "generator"]
    if not call.poisoned and any(x.shape == call.noise.shape and not _same(x, call.noise) for x in seen):
        yield failed(
            "other_noise",
            "the generator was given other noise than the step was",
            "make the fake images from the noise that is passed in",
        )


def _same(seen: Tensor, given: Tensor) -> bool:
    """Whether inputs are the given ones, also after a cast to 16 bits."""
    return seen.shape == given.shape and torch.allclose(seen, given, rtol=0.02, atol=1e-6)


def _nothing_trained() -> Finding:
    return failed(
        "nothing_trained",
        "neither network was called: nothing was trained",
        "compute the discriminator's loss from its judgements of real and fake images, the generator's from "
        "that of the fake ones",
    )


def _loss_in_half(call: GanCall) -> Iterator[Finding]:
    """Find a loss that is in 16 bits when the scaler is given it, and say whose it is."""
    for scaled in call.calls("scale"):
        if scaled.dtype is None or scaled.dtype not in HALVES.values():
            continue
        loss, half = f"the {_scaled_for(call, scaled)}'s loss", dtype_name(scaled.dtype)
        if scaled.made_by and scaled.made_by[0].startswith("ToCopy"):
            yield catalogue.steps.loss_in_half(half, loss)
        if any(name.startswith("BinaryCrossEntropyWithLogits") for name in scaled.made_by):
            yield catalogue.steps.loss_outside_autocast(half, loss)  # under autocast it would be in fp32


def _scaled_for(call: GanCall, scaled: Call) -> str:
    """Return the network whose gradients came from this call of ``scaler.scale``."""
    following = call.events[call.position(scaled) + 1 :]
    until = next(
        (i for i, event in enumerate(following) if isinstance(event, Call) and event.name == "scale"), None
    )
    reached = [event.part for event in following[:until] if isinstance(event, PartBackward)]
    return "generator" if "generator" in reached else "discriminator"


def inputs_cast(call: GanCall) -> Iterator[Finding]:
    """Remark on noise or real images cast by hand; fake images come out of autocast in 16 bits by right."""
    given = {"the noise was": call.noise, "the real images were": call.real}
    forwards = [f for f in call.events if isinstance(f, Forward) and f.input_dtype in HALVES.values()]
    for what, inputs in given.items():
        if any(_same(forward.inputs, inputs) for forward in forwards):
            yield catalogue.precision.inputs_cast(what)


def _forward(forward: Forward, asked: torch.dtype) -> Iterator[Finding]:
    if forward.autocast_dtype is None:
        yield catalogue.precision.no_autocast(f"the {forward.part}", dtype_name(asked))
    elif forward.autocast_dtype != asked:
        yield catalogue.precision.wrong_autocast_dtype(
            f"the {forward.part}", dtype_name(forward.autocast_dtype), asked
        )


def another_scaler(call: GanCall) -> Iterator[Finding]:
    """Find a scaler other than the one that was passed in."""
    if any(each.owner != call.scaler_id for each in call.calls("scale", "scaler.step", "GradScaler")):
        yield failed(
            "another_scaler",
            "another GradScaler than the one passed in was used: made anew in every step, it forgets what it "
            "learned from overflows",
            "use the scaler that is passed in for both losses",
        )


# --- what an exception in a step means


def explained(call: GanCall) -> Finding:
    """Turn the exception that ended a step into a finding that names the mistake behind it."""
    assert call.raised is not None
    return first(_meanings(call)) or said_of(call.raised, f"in {dtype_name(call.dtype)}")


def _meanings(call: GanCall) -> Iterator[Finding]:
    assert call.raised is not None
    text = call.raised.text
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
    place = f" [PyTorch noticed in {call.raised.line}]" if call.raised.line else ""
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
