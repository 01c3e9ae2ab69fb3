"""Both updates of a GAN's step, decomposed into the gradients that could be in them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.two_optimizers.mistakes_that_raise import ONE_UPDATE
from amp_lessons.exercises.two_optimizers.testbed import (
    LARGEST_UNSCALED_GRADIENT,
    GanCall,
    PartBackward,
    Truth,
)

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_TELLING_SCALE = 32  # from here on even a quarter of a scaled loss has larger gradients than an unscaled one


def overflow(call: GanCall) -> Finding | None:
    """The gradients of one network are not finite: its weights must stay, and the scale must fall.

    Fake images that are inf reach the discriminator, too.
    """
    overflowed = ("discriminator",) if call.poisoned == "discriminator" else ("generator", "discriminator")
    for part in overflowed:
        finding = _overflow_of(call, part)
        if finding is not None:
            return finding
    if call.scale_after >= call.scale and call.calls("scale"):
        return failed(
            "scale_never_lowered",
            f"gradients overflowed at scale {call.scale:g}, and the scale afterwards is {call.scale_after:g}",
            "call scaler.update() after the steps, in every iteration",
        )
    return None


def _overflow_of(call: GanCall, part: str) -> Finding | None:
    before, after = getattr(call.before, part), getattr(call.after, part)
    if torch.equal(before, after):
        return None
    optimizer = f"opt_{part[0]}"
    if after.isfinite().all():
        return failed(
            "overflow_hidden",
            f"the {part}'s gradients overflowed, and its weights changed all the same",
            f"leave the check of the gradients to scaler.step({optimizer})",
        )
    return failed(
        "step_bypasses_scaler",
        f"input that overflows in float16 made the {part}'s weights inf or NaN: a step was taken without "
        "the scaler's check",
        f"scale its loss, and call scaler.step({optimizer}), never {optimizer}.step() directly",
    )


def unscaled(call: GanCall) -> Finding | None:
    """Find a loss that went backward as it is: right here, where no gradient is small enough to vanish."""
    if call.dtype != torch.float16 or call.scale < _TELLING_SCALE:
        return None
    passes = [event for event in call.events if isinstance(event, PartBackward)]
    for backward, following in zip(passes, [*passes[1:], None], strict=True):
        if backward.part == "discriminator" and backward.start_gradient <= LARGEST_UNSCALED_GRADIENT:
            part = "generator" if following and following.part == "generator" else "discriminator"
            return failed(
                "loss_not_scaled",
                f"the {part}'s loss was not scaled before backward: at a loss scale of {call.scale:g} its "
                "gradients had the size they have without one, and small ones vanish in float16",
                f"scaler.scale(loss).backward() for both losses, and scaler.step(opt_{part[0]})",
            )
    return None


def discriminator(call: GanCall, judged_by: list[Truth]) -> Finding | None:
    """Name what is wrong with the discriminator's update."""
    right = judged_by[0]
    applied, wanted = call.applied.discriminator, right.real + right.fake
    if _close(call, applied, wanted) or _close(call, applied, 0.5 * wanted):
        return None
    if not applied.isfinite().all() or not applied.any():
        return _not_stepped(call, "discriminator", "opt_d")
    if _close(call, applied, right.swapped_discriminator):
        return _labels("the discriminator was trained to call real images fake, and fake ones real")
    shares, unexplained = min(
        (
            _shares(applied, [right.real, right.fake, judge.pollution, call.leftover.discriminator])
            for judge in judged_by
        ),
        key=lambda decomposition: decomposition[1],
    )
    explained = unexplained < 0.05
    if explained and abs(shares[3]) > 0.02:
        return _leftovers("discriminator", "opt_d")
    if explained and abs(shares[2]) > 0.1:
        return failed(
            "discriminator_polluted",
            "the generator's loss is part of the discriminator's update: its backward pass also filled the "
            "discriminator's gradients, and they were not cleared, or not yet applied",
            "step the discriminator before the generator's backward, and call opt_d.zero_grad() before its "
            "own",
        )
    if explained and min(abs(shares[0]), abs(shares[1])) < 0.1 * max(abs(shares[0]), abs(shares[1])):
        missing = "real" if abs(shares[0]) < abs(shares[1]) else "fake"
        return failed(
            "loss_incomplete",
            f"the discriminator's update contains nothing from the {missing} images",
            "add both terms: real images with label 1, fake images with label 0",
        )
    return _by_factor(call, shares[0] if explained else math.nan, "discriminator", "opt_d")


def generator(call: GanCall, judged_by: list[Truth]) -> Finding | None:
    """Name what is wrong with the generator's update, by the discriminator before its own step or after."""
    applied = call.applied.generator
    if any(_close(call, applied, right.generator) for right in judged_by):
        return None
    if not applied.isfinite().all() or not applied.any():
        return _not_stepped(call, "generator", "opt_g")
    for right in judged_by:
        if _close(call, applied, right.swapped_generator):
            return _labels("the generator was trained to make images that are called fake")
    shares, unexplained = min(
        (
            _shares(applied, [right.generator, right.undetached, call.leftover.generator])
            for right in judged_by
        ),
        key=lambda decomposition: decomposition[1],
    )
    explained = unexplained < 0.05
    if explained and abs(shares[2]) > 0.02:
        return _leftovers("generator", "opt_g")
    if explained and abs(shares[1]) > 0.1 * abs(shares[0]):
        return failed(
            "no_detach",
            "the discriminator's loss is part of the generator's update: the fake images were not detached "
            "in the discriminator's step, so its backward pass went on into the generator",
            "use discriminator(fake.detach()) for the discriminator's loss, or zero the generator's "
            "gradients afterwards",
        )
    return _by_factor(call, shares[0] if explained else math.nan, "generator", "opt_g")


def _close(call: GanCall, applied: Tensor, wanted: Tensor) -> bool:
    return bool((applied - wanted).norm() <= _TOLERANCE[call.dtype] * wanted.norm())


def _shares(applied: Tensor, parts: list[Tensor]) -> tuple[list[float], float]:
    """Write ``applied`` as a sum of ``parts``: the share of each, and the fraction left unexplained."""
    present = [i for i, part in enumerate(parts) if part.any()]
    columns = torch.stack([parts[i] for i in present], dim=1).double()
    found = torch.linalg.lstsq(columns, applied.double()[:, None]).solution[:, 0]
    rest = (columns @ found - applied.double()).norm()
    shares = [0.0] * len(parts)
    for i, share in zip(present, found.tolist(), strict=True):
        shares[i] = share
    return shares, float(rest / applied.double().norm())


def _not_stepped(call: GanCall, part: str, optimizer: str) -> Finding:
    stepped = any(c.owner == call.optimizers[part] for c in call.calls("optimizer.step"))
    if not stepped:
        return failed(
            f"{part}_not_trained",
            f"{optimizer} never stepped: the weights of the {part} did not change",
            f"call scaler.step({optimizer}) after the {part}'s backward pass",
        )
    return failed(
        "gradients_cleared",
        f"{optimizer} stepped without gradients: they were zeroed between backward and step",
        "call zero_grad before the forward pass",
    )


def _labels(message: str) -> Finding:
    return failed(
        "labels_swapped", message, "real images have label 1 and fake ones 0; the generator aims at label 1"
    )


def _leftovers(part: str, optimizer: str) -> Finding:
    return failed(
        "no_zero_grad",
        f"the {part}'s gradients still contained those of the previous step: they were not set to zero",
        f"call {optimizer}.zero_grad() before the {part}'s backward pass",
    )


def _by_factor(call: GanCall, factor: float, part: str, optimizer: str) -> Finding:
    scale = call.scale
    if scale > 1 and math.isclose(factor, scale, rel_tol=0.1):
        return failed(
            "optimizer_step_direct",
            f"the {part}'s update is {scale:g} times too large, the loss scale: its gradients were applied "
            "without being unscaled",
            f"call scaler.step({optimizer}) instead of {optimizer}.step()",
        )
    if scale > 1 and math.isclose(factor, 1 / scale, rel_tol=0.1):
        return failed(
            "loss_not_scaled",
            f"the {part}'s update is {scale:g} times too small: its loss was not scaled before backward, "
            "but its gradients were unscaled",
            "scale both losses: scaler.scale(loss).backward()",
        )
    if _updated_in_between(call) and not math.isnan(factor):
        return failed(
            "update_between_steps",
            f"the {part}'s update is {factor:.3g} times the right one: scaler.update() changed the scale "
            "between its backward pass and its step",
            ONE_UPDATE,
        )
    return failed(
        "wrong_update",
        f"the {part}'s update is not SGD on the gradient of its loss"
        + ("" if math.isnan(factor) else f": it is {factor:.3g} times that"),
        "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1)",
    )


def _updated_in_between(call: GanCall) -> bool:
    names = [c.name for c in call.calls("update", "scaler.step")]
    return "update" in names and "scaler.step" in names[names.index("update") :]
