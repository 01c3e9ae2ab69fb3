"""Both updates of a GAN's step, decomposed into the gradients that could be in them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from amp_lessons.audit import known_mistakes
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.two_optimizers.mistakes_that_raise import ONE_UPDATE, SCALE_BOTH
from amp_lessons.exercises.two_optimizers.testbed import (
    LARGEST_UNSCALED_GRADIENT,
    GanCall,
    PartBackward,
    Truth,
    optimizer_of,
)

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_TELLING_SCALE = 32  # from here on even a quarter of a scaled loss has larger gradients than an unscaled one


def overflow(call: GanCall) -> Iterator[Finding]:
    """Look at a call whose gradients are not finite: weights must stay, and the scale must fall.

    Fake images that are inf reach the discriminator, too.
    """
    overflowed = ("discriminator",) if call.poisoned == "discriminator" else ("generator", "discriminator")
    for part in overflowed:
        yield from _overflow_of(call, part)
    if call.scale_after >= call.scale and call.calls("scale"):
        yield known_mistakes.scale_never_lowered(call.scale, call.scale_after)


def _overflow_of(call: GanCall, part: str) -> Iterator[Finding]:
    before, after = getattr(call.before, part), getattr(call.after, part)
    if torch.equal(before, after):
        return
    if after.isfinite().all():
        yield known_mistakes.overflow_hidden(f"the {part}'s gradients")
    optimizer = optimizer_of(part)
    yield known_mistakes.step_bypasses_scaler(
        f"a step of {optimizer} was taken without the scaler's check", f"the {part}'s weights", optimizer
    )


def unscaled(call: GanCall) -> Iterator[Finding]:
    """Find a loss that went backward as it is: right here, where no gradient is small enough to vanish."""
    if call.dtype != torch.float16 or call.scale < _TELLING_SCALE:
        return
    passes = [event for event in call.events if isinstance(event, PartBackward)]
    for backward, following in zip(passes, [*passes[1:], None], strict=True):
        if backward.part == "discriminator" and backward.start_gradient <= LARGEST_UNSCALED_GRADIENT:
            part = "generator" if following and following.part == "generator" else "discriminator"
            yield known_mistakes.loss_not_scaled(
                f"at a loss scale of {call.scale:g} its gradients had the size they have without one",
                loss=f"the {part}'s loss",
                hint=f"{SCALE_BOTH}; then scaler.step({optimizer_of(part)})",
            )


def discriminator(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    """Name what is wrong with the discriminator's update."""
    right, applied = judged_by[0], call.applied.discriminator
    wanted = right.real + right.fake
    if _close(call, applied, wanted) or _close(call, applied, 0.5 * wanted):
        return
    yield from _not_stepped(call, "discriminator", applied)
    if _close(call, applied, right.swapped_discriminator):
        yield _labels("the discriminator was trained to call real images fake, and fake ones real")
    leftover = call.leftover.discriminator
    parts = [[right.real, right.fake, judge.pollution, leftover] for judge in judged_by]
    shares = _shares(applied, parts)
    if shares is not None:
        yield from _foreign_to_discriminator(*shares)
    yield _by_factor(call, shares[0] if shares else math.nan, "discriminator")


def _foreign_to_discriminator(
    real: float, fake: float, pollution: float, leftover: float
) -> Iterator[Finding]:
    """Judge the shares of an update: what does not belong there, and what is missing."""
    if abs(leftover) > 0.02:
        yield _leftovers("discriminator")
    if abs(pollution) > 0.1:
        yield failed(
            "discriminator_polluted",
            "the generator's loss is part of the discriminator's update: its backward pass also filled the "
            "discriminator's gradients, and they were not cleared, or not yet applied",
            "step the discriminator before the generator's backward, and call opt_d.zero_grad() before its "
            "own",
        )
    if min(abs(real), abs(fake)) < 0.1 * max(abs(real), abs(fake)):
        missing = "real" if abs(real) < abs(fake) else "fake"
        yield failed(
            "loss_incomplete",
            f"the discriminator's update contains nothing from the {missing} images",
            "add both terms: real images with label 1, fake images with label 0",
        )


def generator(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    """Name what is wrong with the generator's update, by the discriminator before its own step or after."""
    applied = call.applied.generator
    if any(_close(call, applied, right.generator) for right in judged_by):
        return
    yield from _not_stepped(call, "generator", applied)
    if any(_close(call, applied, right.swapped_generator) for right in judged_by):
        yield _labels("the generator was trained to make images that are called fake")
    parts = [[right.generator, right.undetached, call.leftover.generator] for right in judged_by]
    shares = _shares(applied, parts)
    if shares is not None:
        yield from _foreign_to_generator(*shares)
    yield _by_factor(call, shares[0] if shares else math.nan, "generator")


def _foreign_to_generator(own: float, undetached: float, leftover: float) -> Iterator[Finding]:
    """Judge the shares of an update: what does not belong there."""
    if abs(leftover) > 0.02:
        yield _leftovers("generator")
    if abs(undetached) > 0.1 * abs(own):
        yield failed(
            "no_detach",
            "the discriminator's loss is part of the generator's update: the fake images were not detached "
            "in the discriminator's step, so its backward pass went on into the generator",
            "use discriminator(fake.detach()) for the discriminator's loss, or zero the generator's "
            "gradients afterwards",
        )


def _close(call: GanCall, applied: Tensor, wanted: Tensor) -> bool:
    return bool((applied - wanted).norm() <= _TOLERANCE[call.dtype] * wanted.norm())


def _shares(applied: Tensor, candidates: list[list[Tensor]]) -> list[float] | None:
    """Write ``applied`` as a sum: the share of each part, for the candidate that leaves least unexplained.

    All are flat. None if even there a twentieth of the norm is left.
    """
    shares, unexplained = min((_fitted(applied, parts) for parts in candidates), key=lambda fit: fit[1])
    return shares if unexplained < 0.05 else None


def _fitted(applied: Tensor, parts: list[Tensor]) -> tuple[list[float], float]:
    """Return the share of each part by least squares, and the fraction of the norm left unexplained."""
    present = [i for i, part in enumerate(parts) if part.any()]
    columns = torch.stack([parts[i] for i in present], dim=1).double()
    found = torch.linalg.lstsq(columns, applied.double()[:, None]).solution[:, 0]
    rest = (columns @ found - applied.double()).norm()
    shares = [0.0] * len(parts)
    for i, share in zip(present, found.tolist(), strict=True):
        shares[i] = share
    return shares, float(rest / applied.double().norm())


def _not_stepped(call: GanCall, part: str, applied: Tensor) -> Iterator[Finding]:
    """Find weights that did not change, or are not finite any more."""
    if applied.isfinite().all() and applied.any():
        return
    optimizer = optimizer_of(part)
    if any(each.owner == call.optimizers[part] for each in call.calls("optimizer.step")):
        yield known_mistakes.gradients_cleared(optimizer)
    yield failed(
        _NOT_TRAINED[part],
        f"{optimizer} never stepped: the weights of the {part} did not change",
        f"call scaler.step({optimizer}) after the {part}'s backward pass",
    )


_NOT_TRAINED = {"discriminator": "discriminator_not_trained", "generator": "generator_not_trained"}


def _labels(message: str) -> Finding:
    return failed(
        "labels_swapped", message, "real images have label 1 and fake ones 0; the generator aims at label 1"
    )


def _leftovers(part: str) -> Finding:
    return known_mistakes.no_zero_grad(f"the {part}'s gradients", optimizer_of(part))


def _by_factor(call: GanCall, factor: float, part: str) -> Finding:
    """Name the mistake behind an update that is ``factor`` times the right one, NaN if it is no multiple."""
    scale = call.scale
    if scale > 1 and math.isclose(factor, scale, rel_tol=0.1):
        return known_mistakes.optimizer_step_direct(scale, f"the {part}'s gradients", optimizer_of(part))
    if scale > 1 and math.isclose(factor, 1 / scale, rel_tol=0.1):
        return known_mistakes.loss_not_scaled(
            f"its update is {scale:g} times too small, since its gradients were unscaled all the same",
            loss=f"the {part}'s loss",
            hint=SCALE_BOTH,
        )
    if _updated_in_between(call) and not math.isnan(factor):
        return failed(
            "update_between_steps",
            f"the {part}'s update is {factor:.3g} times the right one: scaler.update() changed the scale "
            "between its backward pass and its step",
            ONE_UPDATE,
        )
    return known_mistakes.wrong_update(
        f"the {part}'s update",
        "it points elsewhere" if math.isnan(factor) else f"it is {factor:.3g} times that",
        "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1)",
    )


def _updated_in_between(call: GanCall) -> bool:
    names = [c.name for c in call.calls("update", "scaler.step")]
    return "update" in names and "scaler.step" in names[names.index("update") :]
