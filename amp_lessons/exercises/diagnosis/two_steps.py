"""What is wrong with one step of a GAN: each update is decomposed into the gradients that could be in it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises import conduct
from amp_lessons.exercises.diagnosis import errors
from amp_lessons.exercises.gan import GanCall, Truth, truth
from amp_lessons.exercises.results import Finding, failed
from amp_lessons.exercises.spies import Backward, Forward

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}


def first_mistake(call: GanCall) -> Finding | None:
    """Return the root cause of what went wrong in one call, None when nothing did."""
    return next((finding for finding in _mistakes(call) if finding is not None), None)


def _mistakes(call: GanCall) -> Iterator[Finding | None]:
    yield conduct.misconduct(call.outcome)
    if call.outcome.error is not None:
        yield _explained_error(call)
    yield _precision(call)
    if call.poisoned:
        yield _overflow(call)
        return
    judged_by = [truth(call, call.after.discriminator), truth(call, call.before.discriminator)]
    yield _discriminator(call, judged_by)
    yield _generator(call, judged_by)
    yield _returned(call, judged_by)


def _explained_error(call: GanCall) -> Finding:
    text = conduct.text_of(call.outcome.error)
    if "same dtype" in text:  # half and float tensors meet where autocast is off
        return _precision(call) or failed(
            "no_autocast",
            "float32 weights met a 16-bit tensor: a network ran outside autocast, on what another had "
            "computed inside",
            "run every forward pass and loss inside with torch.autocast(device_type, dtype=dtype):",
        )
    for fragment, finding in _ERRORS.items():
        if fragment in text:
            place = f" [{call.outcome.where}]" if call.outcome.where else ""
            return failed(finding.code, finding.message + place, finding.hint)
    return conduct.raised(call.outcome, "in float16" if call.dtype == torch.float16 else "in bfloat16")


_ONE_UPDATE = (
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
    "No inf checks were recorded for this optimizer": failed(
        "gradients_missing",
        "scaler.step found no gradients for one of the optimizers: its network took part in no backward "
        "pass before the step, or its gradients were cleared again",
        "only the discriminator's own step may detach the fake images; zero the gradients before backward, "
        "not after",
    ),
    "_scale is None": failed(
        "loss_not_scaled",
        "scaler.step was called, but no loss had been multiplied by scaler.scale before its backward",
        "scale both losses: scaler.scale(loss).backward()",
    ),
    "step() has already been called since the last update": failed(
        "no_update", "scaler.update() was not called: the scaler cannot start another iteration", _ONE_UPDATE
    ),
    "unscale_() is being called after step": failed(
        "no_update", "scaler.update() was not called: the scaler cannot start another iteration", _ONE_UPDATE
    ),
    "No inf checks were recorded prior to update": failed(
        "update_without_step",
        "scaler.update() was called without a scaler.step(optimizer) before it: there is no inf check to "
        "learn from",
        _ONE_UPDATE,
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
    "Attempting to unscale FP16 gradients": errors.half_parameters(),
    "does not require grad": errors.no_graph(),
    "outputs must be a Tensor or an iterable": failed(
        "scale_needs_a_tensor",
        "scaler.scale() was given something that is not a tensor",
        "write scaler.scale(loss).backward()",
    ),
}


def _precision(call: GanCall) -> Finding | None:
    forwards = [event for event in call.events if isinstance(event, Forward)]
    if not forwards:
        return errors.no_graph()
    if any(forward.parameter_dtype != torch.float32 for forward in forwards):
        return errors.half_parameters()
    for forward in forwards:
        if forward.autocast_dtype is None:
            return failed(
                "no_autocast",
                f"the {forward.part} ran in float32: autocast was not enabled around its forward pass",
                "run every forward pass and loss inside with torch.autocast(device_type, dtype=dtype):",
            )
        if forward.autocast_dtype != call.dtype:
            return failed(
                "wrong_autocast_dtype",
                f"the {forward.part} ran in {str(forward.autocast_dtype)[6:]} although dtype={call.dtype} "
                "was asked for",
                "pass the argument on: torch.autocast(device_type, dtype=dtype)",
            )
    if any(forward.stale for forward in forwards):
        return failed(
            "one_big_autocast",
            "a forward pass used old weights: one autocast context stays open over both steps, and its "
            "cache of 16-bit weights is emptied only when it ends",
            "open one autocast context for the discriminator's loss and another for the generator's",
        )
    if any(event.autocast for event in call.events if isinstance(event, Backward)):
        return failed(
            "backward_in_autocast",
            "backward ran inside the autocast context; PyTorch advises against it",
            "leave the with block after the loss; backward, step and update belong outside",
        )
    return None


def _overflow(call: GanCall) -> Finding | None:
    """The discriminator's gradients are not finite here: its weights must stay, the scale must fall."""
    if not call.after.discriminator.isfinite().all() or not call.after.generator.isfinite().all():
        return failed(
            "step_bypasses_scaler",
            "real images that overflow in float16 made the weights inf or NaN: a step was taken without "
            "the scaler's check",
            "call scaler.step(opt_d) and scaler.step(opt_g), never optimizer.step() directly",
        )
    if not torch.equal(call.before.discriminator, call.after.discriminator):
        return failed(
            "overflow_hidden",
            "the discriminator's gradients overflowed, and its weights changed all the same",
            "leave the check of the gradients to scaler.step(opt_d)",
        )
    if call.scale_after >= call.scale and call.calls("scale"):
        return failed(
            "scale_never_lowered",
            f"gradients overflowed at scale {call.scale:g}, and the scale afterwards is {call.scale_after:g}",
            "call scaler.update() after the steps, in every iteration",
        )
    return None


def _discriminator(call: GanCall, judged_by: list[Truth]) -> Finding | None:
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


def _generator(call: GanCall, judged_by: list[Truth]) -> Finding | None:
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
            _ONE_UPDATE,
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


def _returned(call: GanCall, judged_by: list[Truth]) -> Finding | None:
    value = call.outcome.value
    advice = "return d_loss.item(), g_loss.item()"
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        return failed(
            "wrong_return_type",
            f"two floats were expected, the step returned {conduct.describe(value)}",
            advice,
        )
    if not all(_is_float(v) for v in value):
        return failed(
            "losses_not_floats", f"the step returned {conduct.describe(value)}, not two floats", advice
        )
    d_seen, g_seen = map(float, value)
    d_loss, g_losses = judged_by[0].d_loss, [right.g_loss for right in judged_by]
    if _near(d_seen, [d_loss, 0.5 * d_loss]) and _near(g_seen, g_losses):
        return None
    if _near(g_seen, [d_loss, 0.5 * d_loss]) and _near(d_seen, g_losses):
        return failed("losses_exchanged", "the two losses were returned in the wrong order", advice)
    if call.scale > 1 and (d_seen > 0.5 * call.scale * d_loss or g_seen > 0.5 * call.scale * g_losses[0]):
        return failed(
            "losses_scaled", "a scaled loss was returned; it jumps whenever the scale changes", advice
        )
    return failed(
        "wrong_losses",
        f"the step returned ({d_seen:.4g}, {g_seen:.4g}) instead of ({d_loss:.4g}, {g_losses[0]:.4g})",
        advice,
    )


def _is_float(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _near(seen: float, accepted: list[float]) -> bool:
    return any(math.isclose(seen, value, rel_tol=0.02) for value in accepted)
