"""Both updates of a GAN's step, decomposed into the gradients that could be in them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.two_optimizers.calls import (
    LARGEST_UNSCALED_GRADIENT,
    GanCall,
    Truth,
    optimizer_of,
)
from amp_lessons.exercises.two_optimizers.gan_there import BATCH, PartBackward
from amp_lessons.exercises.two_optimizers.tape_there import Call

ONE_UPDATE = (
    "step both optimizers, then call scaler.update() once; or finish scale, backward, step, update for one "
    "network first"
)
ONCE_EACH = "train each network once per call: one backward pass for its loss, one scaler.step"
SCALE_BOTH = "scale both losses: scaler.scale(loss).backward()"

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_TELLING_SCALE = 32  # from here on even a quarter of a scaled loss has larger gradients than an unscaled one


def overflow(call: GanCall) -> Iterator[Finding]:
    """Find mistakes in a call whose gradients are not finite: weights must stay, and the scale must fall.

    Fake images that are inf reach the discriminator, too.
    """
    overflowed = ("discriminator",) if call.poisoned == "discriminator" else ("generator", "discriminator")
    for part in overflowed:
        yield from _overflow_of(call, part)
    if call.scale_after >= call.scale and call.calls("scale"):
        asked = {each.optimizer for each in call.calls("scaler.step")}
        left_out = [optimizer_of(part) for part in overflowed if call.optimizers[part] not in asked]
        hints = [
            f"call scaler.step({optimizer}) also when the loss is not finite: it leaves the step out by "
            "itself, and tells scaler.update() about it"
            for optimizer in left_out
        ]
        yield catalogue.scaler.scale_never_lowered(call.scale, call.scale_after, *hints[:1])


def _overflow_of(call: GanCall, part: str) -> Iterator[Finding]:
    """Find a step of an overflowed network, also one on zeros, which leaves its weights as they were."""
    optimizer = optimizer_of(part)
    for step in call.steps_of(part):
        if call.gradients_at(step, part).isfinite().all():
            yield catalogue.scaler.overflow_hidden(f"the {part}'s gradients")
        yield catalogue.scaler.step_bypasses_scaler(
            f"a step of {optimizer} was taken without the scaler's check", f"the {part}'s weights", optimizer
        )
    if not torch.equal(getattr(call.before, part), getattr(call.after, part)):
        yield catalogue.steps.weights_changed(f"the {part} overflowed and {optimizer} did not step")


def unscaled(call: GanCall) -> Iterator[Finding]:
    """Find a loss that went backward as it is: right here, where no gradient is small enough to vanish."""
    if call.dtype != torch.float16 or call.scale < _TELLING_SCALE:
        return
    for each in call.passes:
        if each.largest <= LARGEST_UNSCALED_GRADIENT:
            yield catalogue.steps.loss_not_scaled(
                f"at a loss scale of {call.scale:g} its gradients had the size they have without one",
                loss=f"the {each.part}'s loss",
                hint=SCALE_BOTH,
            )


def discriminator(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    """Name what is wrong with the discriminator's update."""
    right, applied = judged_by[0], call.applied.discriminator
    if _close(call, applied, right.real + right.fake):
        return
    yield from _not_stepped(call, "discriminator", applied)
    yield from _another_loss(call, judged_by, "discriminator")
    parts = [
        [right.real, right.fake, call.leftover.discriminator]
        + ([judge.pollution] if _generator_went_before(call) else [])
        for judge in judged_by
    ]
    fit = _fit(applied, parts)
    yield from _changed_on_the_way(call, [right.real + right.fake], "discriminator")
    yield from _labels_off(call, [right], "discriminator", fit)
    if fit is not None:
        yield from _foreign_to_discriminator(*fit.shares)
    yield _by_factor(call, judged_by, fit.shares[0] if fit else math.nan, "discriminator")


def _generator_went_before(call: GanCall) -> bool:
    """Whether a backward pass reached the generator before the discriminator's step was made."""
    step = call.steps_of("discriminator")[0]
    earlier = call.events[: call.position(step)]
    return any(isinstance(event, PartBackward) and event.part == "generator" for event in earlier)


def _foreign_to_discriminator(
    real: float, fake: float, leftover: float, pollution: float = 0.0
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
    if not math.isclose(real, fake, rel_tol=0.1):
        yield catalogue.steps.wrong_update(
            "the discriminator's update",
            f"it holds {real:.3g} times the gradient of the term of the real images, and {fake:.3g} times "
            "that of the fake ones",
            BOTH_LOSSES,
        )


def generator(call: GanCall, judged_by: list[Truth]) -> Iterator[Finding]:
    """Name what is wrong with the generator's update, by the discriminator before its own step or after."""
    applied = call.applied.generator
    if any(_close(call, applied, right.generator) for right in judged_by):
        return
    yield from _not_stepped(call, "generator", applied)
    yield from _another_loss(call, judged_by, "generator")
    parts = [
        [right.generator, call.leftover.generator] + ([right.undetached] if _went_there_twice(call) else [])
        for right in judged_by
    ]
    fit = _fit(applied, parts)
    yield from _changed_on_the_way(call, [right.generator for right in judged_by], "generator")
    if any(_close(call, applied, -right.swapped.generator) for right in judged_by):
        yield catalogue.steps.wrong_update(
            "the generator's update", "it is that of the saturating loss -BCE(D(fake), 0)", BOTH_LOSSES
        )
    yield from _labels_off(call, judged_by, "generator", fit)
    if fit is not None:
        yield from _foreign_to_generator(*fit.shares)
    yield _by_factor(call, judged_by, fit.shares[0] if fit else math.nan, "generator")


def _went_there_twice(call: GanCall) -> bool:
    """Whether two losses may have gone backward into the generator: in two passes, or added up in one."""
    passes = [event for event in call.events if isinstance(event, PartBackward) and event.part == "generator"]
    return len(passes) > 1 or len(call.calls("scale")) < 2


def _foreign_to_generator(own: float, leftover: float, undetached: float = 0.0) -> Iterator[Finding]:
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


def _another_loss(call: GanCall, judged_by: list[Truth], part: str) -> Iterator[Finding]:
    """Recognise an update that is made twice, or that is right for another loss."""
    applied = getattr(call.applied, part)
    steps = call.steps_of(part)
    if len(steps) > 1:
        both = "through the scaler and past it" if any(not step.in_step for step in steps) else ""
        yield catalogue.steps.double_step(f"{optimizer_of(part)} stepped", both, ONCE_EACH)
    if any(_close(call, applied, getattr(right.swapped, part)) for right in judged_by):
        yield _SWAPPED[part]
    if any(_close(call, applied, getattr(right.squashed, part)) for right in judged_by):
        yield failed(
            "sigmoid_twice",
            f"the {part}'s loss was computed on probabilities: binary_cross_entropy_with_logits applies a "
            "sigmoid itself, and a second one flattens its gradients",
            "give it the discriminator's outputs as they are",
        )


def _changed_on_the_way(call: GanCall, wanted: list[Tensor], part: str) -> Iterator[Finding]:
    """Find gradients changed after ``unscale_``, and weights changed otherwise than by the step."""
    step = call.steps_of(part)[0]
    given, optimizer = call.gradients_at(step, part), optimizer_of(part)
    if any(_close(call, given, gradient) for gradient in wanted):
        yield catalogue.steps.weights_changed(f"{optimizer} was given the right gradients")
    before = call.events[: call.position(step)]
    unscaled = [e for e in before if isinstance(e, Call) and e.name == "unscaled" and e.gradients is not None]
    found = [call.gradients_at(each, part) for each in unscaled]
    if any(_close(call, each, gradient) for each in found for gradient in wanted):
        if _is_divided(given, found[-1], call.scale):
            yield catalogue.steps.unscaled_twice(call.scale, f"the {part}'s update")
        yield catalogue.steps.gradients_changed(f"the {part}'s gradients", optimizer)


def _is_divided(gradients: Tensor, before: Tensor, scale: float) -> bool:
    return scale > 1 and bool((gradients * scale - before).norm() < 0.01 * before.norm())


def _labels_off(call: GanCall, judged_by: list[Truth], part: str, other: Fit | None) -> Iterator[Finding]:
    """Recognise labels other than 1 and 0, smoothed ones for example, if they explain an update best."""
    applied = getattr(call.applied, part)
    for right in judged_by:
        wanted = right.generator if part == "generator" else right.real + right.fake
        fit = _fitted(applied - wanted, right.lifts[part])
        unexplained = fit.unexplained * float((applied - wanted).norm() / applied.norm())
        if unexplained > _TOLERANCE[call.dtype] or (other is not None and other.unexplained < unexplained):
            continue
        labels = [1.0 - fit.shares[0], *(-share for share in fit.shares[1:])]
        if all(-0.05 <= label <= 1.05 for label in labels):
            whose = ("real images", "fake images") if part == "discriminator" else ("fake images",)
            seen = " and ".join(
                f"{abs(round(label, 2)):g} for {images}" for label, images in zip(labels, whose, strict=True)
            )
            yield failed(
                "other_labels",
                f"the {part} was trained with other labels than 1 and 0: its update is that of label {seen}",
                _RIGHT_LABELS,
            )


def _close(call: GanCall, applied: Tensor, wanted: Tensor) -> bool:
    return bool((applied - wanted).norm() <= _TOLERANCE[call.dtype] * wanted.norm())


@dataclass(frozen=True)
class Fit:
    """An update as a sum: the share of each part, and the fraction of its norm that is left unexplained."""

    shares: list[float]
    unexplained: float


def _fit(applied: Tensor, candidates: list[list[Tensor]]) -> Fit | None:
    """Write ``applied`` as a sum of the parts of the candidate that leaves least unexplained; all are flat.

    None if even there a twentieth of the norm is left.
    """
    best = min((_fitted(applied, parts) for parts in candidates), key=lambda fit: fit.unexplained)
    return best if best.unexplained < 0.05 else None


def _fitted(applied: Tensor, parts: list[Tensor]) -> Fit:
    """Find the share of each part by least squares; zero for a part that is zero."""
    present = [i for i, part in enumerate(parts) if part.any()]
    columns = torch.stack([parts[i] for i in present], dim=1).double()
    found = torch.linalg.lstsq(columns, applied.double()[:, None]).solution[:, 0]
    rest = (columns @ found - applied.double()).norm()
    shares = [0.0] * len(parts)
    for i, share in zip(present, found.tolist(), strict=True):
        shares[i] = share
    return Fit(shares, float(rest / applied.double().norm()))


def _not_stepped(call: GanCall, part: str, applied: Tensor) -> Iterator[Finding]:
    """Find weights that did not change, or are not finite any more."""
    if applied.isfinite().all() and applied.any():
        return
    optimizer = optimizer_of(part)
    if call.steps_of(part):
        yield catalogue.steps.gradients_cleared(optimizer)
    yield failed(
        _NOT_TRAINED[part],
        f"{optimizer} never stepped: the weights of the {part} did not change",
        f"call scaler.step({optimizer}) after the {part}'s backward pass",
    )


_NOT_TRAINED = {"discriminator": "discriminator_not_trained", "generator": "generator_not_trained"}


_RIGHT_LABELS = "real images have label 1 and fake ones 0; the generator aims at label 1"
_SWAPPED = {
    "discriminator": failed(
        "labels_swapped",
        "the discriminator was trained to call real images fake, and fake ones real",
        _RIGHT_LABELS,
    ),
    "generator": failed(
        "labels_swapped", "the generator was trained to make images that are called fake", _RIGHT_LABELS
    ),
}
BOTH_LOSSES = "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1)"


def _leftovers(part: str) -> Finding:
    return catalogue.steps.no_zero_grad(f"the {part}'s gradients", optimizer_of(part))


def _by_factor(call: GanCall, judged_by: list[Truth], factor: float, part: str) -> Finding:
    """Name the mistake behind an update that is ``factor`` times the right one, NaN if it is no multiple."""
    scale = call.scale
    past_the_scaler = any(not step.in_step for step in call.steps_of(part))
    if scale > 1 and past_the_scaler and math.isclose(factor, scale, rel_tol=0.1):
        return catalogue.steps.optimizer_step_direct(scale, f"the {part}'s gradients", optimizer_of(part))
    if scale > 1 and math.isclose(factor, 1 / scale, rel_tol=0.1):
        if _loss_was_rescaled(call, judged_by, 1.0, part):
            return catalogue.steps.unscaled_twice(scale, f"the {part}'s update")
        return catalogue.steps.loss_not_scaled(
            f"its update is {scale:g} times too small, since its gradients were unscaled all the same",
            loss=f"the {part}'s loss",
            hint=SCALE_BOTH,
        )
    if _loss_was_rescaled(call, judged_by, factor, part):
        return catalogue.steps.loss_rescaled(
            f"the {part}'s update",
            factor,
            f"its loss was multiplied by that before backward{_what_does_so(factor, part)}",
            BOTH_LOSSES,
        )
    if _updated_in_between(call) and not math.isnan(factor):
        return catalogue.scaler.update_between_steps(
            f"the {part}'s update is {factor:.3g} times the right one", ONE_UPDATE
        )
    return catalogue.steps.wrong_update(
        f"the {part}'s update",
        "it points elsewhere" if math.isnan(factor) else f"it is {factor:.3g} times that",
        BOTH_LOSSES,
    )


def _loss_was_rescaled(call: GanCall, judged_by: list[Truth], factor: float, part: str) -> bool:
    """Whether backward began with gradients ``factor`` times as large as the scale explains."""
    began = max((each.largest / each.scale for each in call.passes if each.part == part), default=math.nan)
    return any(math.isclose(began, factor * right.largest[part], rel_tol=0.1) for right in judged_by)


def _what_does_so(factor: float, part: str) -> str:
    if math.isclose(factor, BATCH, rel_tol=0.02):
        return f', as reduction="sum" does with a batch of {BATCH}'
    if part == "discriminator" and math.isclose(factor, 0.5, rel_tol=0.02):
        return ", as the mean of its two terms does, where their sum is asked for"
    return ""


def _updated_in_between(call: GanCall) -> bool:
    names = [c.name for c in call.calls("update", "scaler.step")]
    return "update" in names and "scaler.step" in names[names.index("update") :]
