"""In which dtype both networks of a GAN's step ran, and with which scaler."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.two_optimizers.testbed import GanCall, PartBackward
from amp_lessons.exercises.watching.tape import Backward, Call, Forward
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES


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
