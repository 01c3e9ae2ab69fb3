"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.worker.client import Raised, Worker
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.audit.rules.scaler import batch_left_out
from amp_lessons.course.exercises.attempt import require_none
from amp_lessons.course.exercises.bed import as_raised, described, function, said_of
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.common_findings import float_in
from amp_lessons.course.exercises.two_optimizers import gan_there
from amp_lessons.course.exercises.two_optimizers.gan_there import (
    BATCH,
    FEATURES,
    LEARNING_RATE,
    NOISE,
    PARTS,
    Part,
)
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

_ONE_UPDATE = (
    "step both optimizers, then call scaler.update() once; or finish scale, backward, step, update for one "
    "network first"
)
_ONCE_EACH = "train each network once per call: one backward pass for its loss, one scaler.step"
_SCALE_BOTH = "scale both losses: scaler.scale(loss).backward()"
_BOTH_LOSSES = "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1)"
_RIGHT_LABELS = "real images have label 1 and fake ones 0; the generator aims at label 1"
_ADVICE = "return d_loss.item(), g_loss.item()"
_DEVICE_HINT = "write torch.autocast(device_type, …)"

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_LARGEST_UNSCALED = 1 / BATCH  # gradient of a mean of binary cross entropies, by its logits
_TELLING_SCALE = 32  # from here on even a quarter of a scaled loss has larger gradients than an unscaled one
_POISON = 1e6  # more than fp16 holds
_CALLS = 3
with torch.device("meta"):
    _SIZES = [sum(p.numel() for p in Part(name).parameters()) for name in PARTS]
# No two causes of a wrong update share a factor: neither a scale nor their ratio is the batch size, or a
# half. The scale first changes after each step, so that order shows, then only by an overflow.
_GROWING = {"init_scale": 8.0, "growth_interval": 1, "growth_factor": 3.0}
_KEPT = {"init_scale": 1024.0, "growth_interval": 1000, "growth_factor": 3.0}


@dataclass(frozen=True)
class _Problem:
    """A dtype, a scaler's arguments, and the network that the second call overflows in, if any."""

    dtype: torch.dtype
    scaler: dict[str, Any]
    poisoned: str | None = None

    def drawn(self, draw: torch.Generator) -> tuple[dict[str, Any], list[tuple[Tensor, Tensor]]]:
        """Return what the worker is given, and the batches as they were before one was poisoned."""
        weights = [torch.randn(size, generator=draw) * 0.5 for size in _SIZES]
        batches = [
            (
                torch.randn(BATCH, FEATURES, generator=draw) * 0.7 + 0.5,
                torch.randn(BATCH, NOISE, generator=draw),
            )
            for _ in range(_CALLS)
        ]
        given = list(batches)
        if self.poisoned is not None:
            real, noise = given[1]
            given[1] = (
                (real * _POISON, noise) if self.poisoned == "discriminator" else (real, noise * _POISON)
            )
        scaler = {**self.scaler, "enabled": self.dtype == torch.float16}
        return {"weights": weights, "batches": given, "dtype": self.dtype, "scaler": scaler}, batches


_PROBLEMS = (
    _Problem(torch.float16, _GROWING),
    _Problem(torch.float16, _GROWING),
    _Problem(torch.bfloat16, _GROWING),
    _Problem(torch.float16, _KEPT, "discriminator"),
    _Problem(torch.float16, _KEPT, "generator"),
)


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step train both networks a few times, and hold every call against the true gradients."""
    gan_step = function(worker, "gan_step", *[None] * 7, device_type=None, dtype=None)
    cuda: set[str] = set()
    old: set[str] = set()
    remarks: dict[Finding, None] = {}
    lowered = ", and the scale was lowered"
    for problem in _PROBLEMS:
        given, batches = problem.drawn(draw)
        told, _ = gan_step.called_by(f"{gan_there.__name__}:train", extra=(given,))
        for number, seen in enumerate(told["calls"]):
            poisoned = problem.poisoned if number == 1 else None
            call = GanCall(seen, told["owners"], problem.dtype, *batches[number], poisoned)
            require_none(_mistakes(call))
            remarks |= dict.fromkeys(_inputs_cast(call) if poisoned is None else ())
            if poisoned and not call.calls("scale"):
                costs = ", both networks miss a step where the loss of one of them is not finite"
                remarks[batch_left_out(costs)], lowered = None, ""
        cuda |= set(told["cuda"])
        old |= set(told["old"])
    place = common_findings.in_place_of_cuda(cuda, "autocast", "cpu")
    yield passed(
        "precision", f"both networks ran under autocast{place} in the dtype asked for, backward outside it"
    )
    yield passed("discriminator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("generator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("overflow", f"an overflow in a network left its weights alone{lowered}")
    yield passed("losses", "both losses are returned, unscaled")
    yield from remarks
    if cuda:
        effect = "PyTorch would only warn and switch autocast off"
        yield common_findings.cuda_replaced("device_type", effect, _DEVICE_HINT)
        return
    for name in sorted(old):
        says = f"{name} names one device, whatever device_type says"
        yield common_findings.fixed_device(says, _DEVICE_HINT)


class GanCall:
    """One call of the learner's step: what there was before, what it did, what it returned.

    ``real`` is (batch, 6) and ``noise`` (batch, 4), both before the network that ``poisoned`` names was given
    too large ones. ``before``, ``after``, ``leftover`` (gradients from earlier) and ``applied`` (the
    gradients that the change of the weights amounts to) are flat, by network.
    """

    def __init__(
        self,
        told: dict[str, Any],
        owners: dict[str, int],
        dtype: torch.dtype,
        real: Tensor,
        noise: Tensor,
        poisoned: str | None,
    ) -> None:
        self.owners, self.dtype, self.real, self.noise = owners, dtype, real, noise
        self.poisoned = poisoned
        self.before, self.after = map(_by_part, told["weights"])
        self.leftover = _by_part(told["leftover"])
        self.applied = {part: (self.before[part] - self.after[part]) / LEARNING_RATE for part in PARTS}
        self.scale, self.scale_after = told["scales"]
        self.returned, self.frozen = told["returned"], told["frozen"]
        self.raised: Raised | None = None if told["raised"] is None else as_raised(told["raised"])
        self.events: list[dict[str, Any]] = told["events"]
        self.forwards = [each for each in self.calls("forward") if each["graph"]]

    def calls(self, *names: str) -> list[dict[str, Any]]:
        """List the calls of these names, from first to last."""
        return [each for each in self.events if each["name"] in names]

    def steps_of(self, part: str) -> list[dict[str, Any]]:
        """List the steps that the optimizer of a network made, through the scaler or past it."""
        return [each for each in self.calls("optimizer.step") if each["owner"] == self.owners[part]]

    def close(self, seen: Tensor, wanted: Tensor) -> bool:
        """Whether a gradient is the wanted one, as far as its dtype can tell."""
        return bool((seen - wanted).norm() <= _TOLERANCE[self.dtype] * wanted.norm())

    def passes(self) -> list[tuple[str, float, float]]:
        """List passes back from the discriminator's outputs: for which network, how large, the scale."""
        found: list[tuple[str, float, float]] = []
        scale = 1.0
        for event in self.events:
            if event["name"] == "scale":
                scale = event["scale"]
            elif event["name"] == "backward" and event["part"] == "discriminator":
                found.append(("discriminator", event["largest"], scale))
            elif event["name"] == "backward" and found:
                found[-1] = ("generator", *found[-1][1:])
        return found


def _by_part(joined: Tensor) -> dict[str, Tensor]:
    return dict(zip(PARTS, joined.split(_SIZES), strict=True))


def _opt(part: str) -> str:
    return f"opt_{part[0]}"


def _mistakes(call: GanCall) -> Iterator[Finding]:
    """Find the mistakes of one call, root causes first."""
    if call.raised is not None:
        yield first(_meanings(call, call.raised)) or said_of(call.raised, f"in {dtype_name(call.dtype)}")
    yield from _precision(call)
    yield from _another_scaler(call)
    if call.poisoned:
        yield from _overflow(call)
        return
    # the network that goes second may see the other before or after its step
    truths = [
        Truth(call, call.after["discriminator"], call.before["generator"]),
        Truth(call, call.before["discriminator"], call.after["generator"]),
    ]
    for part in PARTS:
        if not any(call.close(call.applied[part], truth.wanted[part]) for truth in truths):
            yield from _wrong_update(call, truths, part)
    yield from _never_scaled(call)
    if call.frozen:
        yield rules.dtypes.parameters_frozen(
            "after the step", f"the {call.frozen[0]}'s parameters", "unfreeze them before the step returns"
        )
    yield from _wrong_losses(call, truths)


# --- what the step should have done, and what known mistakes make of it


class Truth:
    """The losses of one step and their gradients: of a generator that a discriminator of the weights
    ``judging`` judges, and of a discriminator for which one of the weights ``making`` makes fake images.
    """

    def __init__(self, call: GanCall, judging: Tensor, making: Tensor) -> None:
        self._generator = _rebuilt("generator", call.before["generator"])
        self._old = _rebuilt("discriminator", call.before["discriminator"])
        judge = _rebuilt("discriminator", judging)
        fake, given = self._generator(call.noise), _rebuilt("generator", making)(call.noise).detach()
        self._real, self._fake, self._judged = self._old(call.real), self._old(given), judge(fake)
        self._undetached = self._old(fake)
        self.losses = tuple(
            float(each) for each in (_bce(self._real, 1) + _bce(self._fake, 0), _bce(self._judged, 1))
        )
        self.wanted = {"discriminator": self.of_labels(1, 0), "generator": self.of_label(1)}
        by_logits = [_by_logits(self._real, 1), _by_logits(self._fake, 0)], [_by_logits(self._judged, 1)]
        self.largest = dict(zip(PARTS, map(max, by_logits), strict=True))

    def of_labels(self, real: float | None, fake: float | None, squash: bool = False) -> Tensor:
        """Return the discriminator's gradient under these labels; None leaves a term out."""
        terms = [(self._real, real), (self._fake, fake)]
        losses = [_bce(logits, label, squash) for logits, label in terms if label is not None]
        return _gradient(torch.stack(losses).sum(), self._old)

    def of_label(self, label: float, squash: bool = False) -> Tensor:
        """Return the generator's gradient under this label."""
        return _gradient(_bce(self._judged, label, squash), self._generator)

    def suspects(self, call: GanCall, part: str) -> Iterator[tuple[Tensor, Finding]]:
        """List the updates that known mistakes make of a network, as gradients."""
        left = call.leftover[part] / call.scale
        yield self.wanted[part] + left, rules.steps.no_zero_grad(f"the {part}'s gradients", _opt(part))
        if part == "generator":
            yield self.of_label(1) + _gradient(_bce(self._undetached, 0), self._generator), _NO_DETACH
            yield self.of_label(0), _swapped("the generator was trained to make images that are called fake")
            yield (
                -self.of_label(0),
                rules.steps.wrong_update(
                    "the generator's update",
                    "it is that of the saturating loss -BCE(D(fake), 0)",
                    _BOTH_LOSSES,
                ),
            )
            yield self.of_label(1, squash=True), _sigmoid_twice(part)
            return
        yield self.of_labels(1, 0) + _gradient(_bce(self._undetached, 1), self._old), _POLLUTED
        yield self.of_labels(1, None), _incomplete("fake")
        yield self.of_labels(None, 0), _incomplete("real")
        yield (
            self.of_labels(0, 1),
            _swapped("the discriminator was trained to call real images fake, and fake ones real"),
        )
        yield self.of_labels(1, 0, squash=True), _sigmoid_twice(part)
        for real, fake in ((0.9, 0.0), (1.0, 0.1), (0.9, 0.1), (0.8, 0.0)):  # as smoothing sets them
            yield (
                self.of_labels(real, fake),
                failed(
                    "other_labels",
                    "the discriminator was trained with other labels than 1 and 0: its update is that of "
                    f"label {real:g} for real images and {fake:g} for fake images",
                    _RIGHT_LABELS,
                ),
            )


_NO_DETACH = failed(
    "no_detach",
    "the discriminator's loss is part of the generator's update: the fake images were not detached in the "
    "discriminator's step, so its backward pass went on into the generator",
    "use discriminator(fake.detach()) for the discriminator's loss, or zero the generator's gradients "
    "afterwards",
)
_POLLUTED = failed(
    "discriminator_polluted",
    "the generator's loss is part of the discriminator's update: its backward pass also filled the "
    "discriminator's gradients, and they were not cleared, or not yet applied",
    "step the discriminator before the generator's backward, and call opt_d.zero_grad() before its own",
)
_swapped = partial(failed, "labels_swapped", hint=_RIGHT_LABELS)


def _incomplete(missing: str) -> Finding:
    return failed(
        "loss_incomplete",
        f"the discriminator's update contains nothing from the {missing} images",
        "add both terms: real images with label 1, fake images with label 0",
    )


def _sigmoid_twice(part: str) -> Finding:
    return failed(
        "sigmoid_twice",
        f"the {part}'s loss was computed on probabilities: binary_cross_entropy_with_logits applies a "
        "sigmoid itself, and a second one flattens its gradients",
        "give it the discriminator's outputs as they are",
    )


def _rebuilt(name: str, weights: Tensor) -> Part:
    part = Part(name)
    nn.utils.vector_to_parameters(weights.clone(), part.parameters())
    return part


def _bce(logits: Tensor, label: float, squash: bool = False) -> Tensor:
    logits = logits.sigmoid() if squash else logits
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def _by_logits(logits: Tensor, label: float) -> float:
    return float((logits.sigmoid() - label).abs().max()) / len(logits)


def _gradient(loss: Tensor, part: nn.Module) -> Tensor:
    gradients = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True)
    return torch.cat([g.reshape(-1) for g in gradients])


# --- what is wrong with an update

_NOT_TRAINED = {"discriminator": "discriminator_not_trained", "generator": "generator_not_trained"}


def _wrong_update(call: GanCall, truths: list[Truth], part: str) -> Iterator[Finding]:
    """Name what is wrong with a network's update, from what is seen of its steps to what its numbers tell."""
    applied, steps, optimizer = call.applied[part], call.steps_of(part), _opt(part)
    if not (applied.isfinite().all() and applied.any()):
        if steps:
            yield rules.steps.gradients_cleared(optimizer)
        yield failed(
            _NOT_TRAINED[part],
            f"{optimizer} never stepped: the weights of the {part} did not change",
            f"call scaler.step({optimizer}) after the {part}'s backward pass",
        )
    if len(steps) > 1:
        both = "through the scaler and past it" if any(not step["inside"] for step in steps) else ""
        yield rules.steps.double_step(f"{optimizer} stepped", both, _ONCE_EACH)
    for truth in truths:
        for made, cause in truth.suspects(call, part):
            if call.close(applied, made):
                yield cause
    yield from _changed_on_the_way(call, truths, part)
    for truth in truths:
        wanted = truth.wanted[part]
        factor = float(applied @ wanted / (wanted @ wanted))
        if call.close(applied, factor * wanted):
            yield _of_factor(call, truth, part, factor)
    wanted = truths[0].wanted[part]
    off, long = (applied - wanted).norm() / wanted.norm(), applied.norm() / wanted.norm()
    yield rules.steps.wrong_update(
        f"the {part}'s update", f"it is {long:.3g} times as long, and {off:.0%} off", _BOTH_LOSSES
    )


def _changed_on_the_way(call: GanCall, truths: list[Truth], part: str) -> Iterator[Finding]:
    """Find gradients changed after ``unscale_``, and weights changed otherwise than by the step."""
    given = call.steps_of(part)[0]["gradients"]
    unscaled = [each["gradients"] for each in call.calls("unscaled")]
    given, *found = (_by_part(each)[part] for each in (given, *unscaled))
    if any(call.close(given, truth.wanted[part]) for truth in truths):
        yield rules.steps.weights_changed(f"{_opt(part)} was given the right gradients")
    if any(call.close(each, truth.wanted[part]) for each in found for truth in truths):
        if call.scale > 1 and any(call.close(given * call.scale, each) for each in found):
            yield rules.steps.unscaled_twice(call.scale, f"the {part}'s update")
        yield rules.steps.gradients_changed(f"the {part}'s gradients", _opt(part))


def _of_factor(call: GanCall, truth: Truth, part: str, factor: float) -> Finding:
    """Name the mistake behind an update that is ``factor`` times the right one."""
    scale, update, near = call.scale, f"the {part}'s update", partial(math.isclose, rel_tol=0.1)
    largest = [size / scaled for whose, size, scaled in call.passes() if whose == part]
    began = max(largest, default=math.nan) / truth.largest[part]  # as a multiple of what the scale explains
    if scale > 1 and near(factor, scale) and not all(step["inside"] for step in call.steps_of(part)):
        return rules.steps.optimizer_step_direct(scale, f"the {part}'s gradients", _opt(part))
    if scale > 1 and near(factor, 1 / scale):
        if near(began, 1):
            return rules.steps.unscaled_twice(scale, update)
        why = f"its update is {scale:g} times too small, since its gradients were unscaled all the same"
        return rules.loss.loss_not_scaled(why, loss=f"the {part}'s loss", hint=_SCALE_BOTH)
    if near(began, factor):
        how = f"its loss was multiplied by that before backward{_what_does_so(factor, part)}"
        return rules.loss.loss_rescaled(update, factor, how, _BOTH_LOSSES)
    names = [each["name"] for each in call.calls("update", "scaler.step")]
    if "update" in names and "scaler.step" in names[names.index("update") :]:
        which = f"{update} is {factor:.3g} times the right one"
        return rules.scaler.update_between_steps(which, _ONE_UPDATE)
    return rules.steps.wrong_update(update, f"it is {factor:.3g} times that", _BOTH_LOSSES)


def _what_does_so(factor: float, part: str) -> str:
    if math.isclose(factor, BATCH, rel_tol=0.02):
        return f', as reduction="sum" does with a batch of {BATCH}'
    if part == "discriminator" and math.isclose(factor, 0.5, rel_tol=0.02):
        return ", as the mean of its two terms does, where their sum is asked for"
    return ""


def _never_scaled(call: GanCall) -> Iterator[Finding]:
    """Find a loss that went backward as it is: right here, where no gradient is small enough to vanish."""
    for part, largest, _ in call.passes():
        if call.dtype == torch.float16 and call.scale >= _TELLING_SCALE and largest <= _LARGEST_UNSCALED:
            why = f"at a loss scale of {call.scale:g} its gradients had the size they have without one"
            yield rules.loss.loss_not_scaled(why, loss=f"the {part}'s loss", hint=_SCALE_BOTH)


def _overflow(call: GanCall) -> Iterator[Finding]:
    """Find mistakes where gradients are not finite: weights must stay, and the scale must fall.

    Fake images that are inf reach the discriminator, too.
    """
    overflowed = PARTS[:1] if call.poisoned == "discriminator" else PARTS
    for part in overflowed:
        optimizer = _opt(part)
        for step in call.steps_of(part):  # also one on zeros, which leaves the weights as they were
            if _by_part(step["gradients"])[part].isfinite().all():
                yield rules.scaler.overflow_hidden(f"the {part}'s gradients")
            how = f"a step of {optimizer} was taken without the scaler's check"
            yield rules.scaler.step_bypasses_scaler(how, f"the {part}'s weights", optimizer)
        if not torch.equal(call.before[part], call.after[part]):
            yield rules.steps.weights_changed(f"the {part} overflowed and {optimizer} did not step")
    if call.scale_after >= call.scale and call.calls("scale"):
        asked = {each["stepped"] for each in call.calls("scaler.step")}
        hints = [
            f"call scaler.step({_opt(part)}) also when the loss is not finite: it leaves the step out by "
            "itself, and tells scaler.update() about it"
            for part in overflowed
            if call.owners[part] not in asked
        ]
        yield rules.scaler.scale_never_lowered(call.scale, call.scale_after, *hints[:1])


# --- what was returned


def _wrong_losses(call: GanCall, truths: list[Truth]) -> Iterator[Finding]:
    returned = call.returned
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        yield common_findings.wrong_return_type("two floats were", described(returned), _ADVICE)
    if any(isinstance(each, Tensor) or float_in(each) is None for each in returned):
        yield failed("losses_not_floats", f"the step returned {described(returned)}, not two floats", _ADVICE)
    seen = [float_in(each) or 0.0 for each in returned]
    d_losses, g_losses = zip(*(truth.losses for truth in truths), strict=True)
    d_loss = d_losses[0]
    right, exchanged = (
        any(_near(d_seen, each) for each in d_losses) and any(_near(g_seen, each) for each in g_losses)
        for d_seen, g_seen in (seen, reversed(seen))
    )
    if right:
        return
    if exchanged:
        yield failed("losses_exchanged", "the two losses were returned in the wrong order", _ADVICE)
    if call.scale > 1 and (seen[0] > 0.5 * call.scale * d_loss or seen[1] > 0.5 * call.scale * g_losses[0]):
        yield failed(
            "losses_scaled", "a scaled loss was returned; it jumps whenever the scale changes", _ADVICE
        )
    yield failed(
        "wrong_losses",
        f"the step returned ({seen[0]:.4g}, {seen[1]:.4g}) instead of ({d_loss:.4g}, {g_losses[0]:.4g})",
        _ADVICE,
    )


_near = partial(math.isclose, rel_tol=0.02)


# --- in which dtype both networks ran, and with which scaler


def _precision(call: GanCall) -> Iterator[Finding]:
    """Find a network outside autocast or in another dtype, stale weights, and a backward pass inside."""
    if not call.forwards:
        yield rules.loss.no_graph() if call.calls("forward") else _NOTHING_TRAINED
    if any(each["weight_dtype"] != torch.float32 for each in call.forwards):
        yield rules.dtypes.half_parameters()
    asked = call.dtype
    for each in call.forwards:
        network, ran = f"the {each['part']}", each["autocast"]
        if ran is None:
            yield rules.dtypes.no_autocast(network, dtype_name(asked))
        elif ran != asked:
            yield rules.dtypes.wrong_autocast_dtype(network, dtype_name(ran), asked)
    if any(each["stale"] for each in call.forwards):
        yield rules.dtypes.one_big_autocast("for each network's loss")
    for each in call.forwards:  # for the generator's loss the discriminator may be in evaluation mode
        if not each["training"] and (each["part"] == "generator" or _same(each["inputs"], call.real)):
            yield rules.dtypes.evaluation_mode(f"while the {each['part']} was trained")
        other = each["part"] == "generator" and not _same(each["inputs"], call.noise)
        if other and each["inputs"].shape == call.noise.shape and not call.poisoned:
            yield failed(
                "other_noise",
                "the generator was given other noise than the step was",
                "make the fake images from the noise that is passed in",
            )
    yield from _loss_in_half(call)
    if any(each["autocast"] for each in call.calls("backward")):
        yield rules.dtypes.backward_in_autocast(dtype_name(asked))


_NOTHING_TRAINED = failed(
    "nothing_trained",
    "neither network was called: nothing was trained",
    "compute the discriminator's loss from its judgements of real and fake images, the generator's from that "
    "of the fake ones",
)


def _same(seen: Tensor, given: Tensor) -> bool:
    """Whether inputs are the given ones, also after a cast to 16 bits."""
    return seen.shape == given.shape and torch.allclose(seen, given, rtol=0.02, atol=1e-6)


def _loss_in_half(call: GanCall) -> Iterator[Finding]:
    """Find a loss that is in 16 bits when the scaler is given it, and say whose it is."""
    for i, event in enumerate(call.events):
        if event["name"] != "scale" or event.get("dtype") not in HALVES.values():
            continue
        following = [each for each in call.events[i + 1 :] if each["name"] in ("scale", "backward")]
        until = next((k for k, each in enumerate(following) if each["name"] == "scale"), None)
        reached = {each["part"] for each in following[:until]}
        loss = f"the {'generator' if 'generator' in reached else 'discriminator'}'s loss"
        if event["made_by"][:1] == ["ToCopyBackward0"]:
            yield rules.loss.loss_in_half(dtype_name(event["dtype"]), loss)
        if any(name.startswith("BinaryCrossEntropyWithLogits") for name in event["made_by"]):
            # under autocast it would be in fp32
            yield rules.loss.loss_outside_autocast(dtype_name(event["dtype"]), loss)


def _inputs_cast(call: GanCall) -> Iterator[Finding]:
    """Remark on noise or real images cast by hand; fake images come out of autocast in 16 bits by right."""
    halved = [each["inputs"] for each in call.forwards if each["input_dtype"] in HALVES.values()]
    for what, inputs in (("the noise was", call.noise), ("the real images were", call.real)):
        if any(_same(each, inputs) for each in halved):
            yield rules.dtypes.inputs_cast(what)


def _another_scaler(call: GanCall) -> Iterator[Finding]:
    """Find a scaler other than the one that was passed in."""
    owners = {each["owner"] for each in call.calls("scale", "scaler.step", "GradScaler")}
    if owners - {call.owners["scaler"]}:
        yield failed(
            "another_scaler",
            "another GradScaler than the one passed in was used: made anew in every step, it forgets what it "
            "learned from overflows",
            "use the scaler that is passed in for both losses",
        )


# --- what an exception in a step means


def _meanings(call: GanCall, raised: Raised) -> Iterator[Finding]:
    """List the mistakes that may be behind an exception, the likeliest first."""
    if "same dtype" in raised.text:  # half and float tensors meet where autocast is off
        yield from _precision(call)
        yield rules.dtypes.no_autocast(
            "a network, given what another had computed in 16 bits,", dtype_name(call.dtype)
        )
    stepped = [each["stepped"] for each in call.calls("scaler.step")]
    if "step() has already been called since the last update" in raised.text:
        for part in PARTS:
            if stepped.count(call.owners[part]) > 1:
                yield rules.steps.double_step(f"scaler.step({_opt(part)}) was called", hint=_ONCE_EACH)
    if "No inf checks were recorded for this optimizer" in raised.text:
        yield from _another_scaler(call)
        yield _gradients_missing(PARTS[stepped[-1] != call.owners["discriminator"]])
    place = f" [PyTorch noticed in {raised.line}]" if raised.line else ""
    for fragment, finding in _ERRORS.items():
        if fragment in raised.text:
            yield replace(finding, message=finding.message + place)


def _gradients_missing(part: str) -> Finding:
    why = (
        "the fake images of its loss were detached or made under no_grad, so backward ended before it"
        if part == "generator"
        else "its loss took part in no backward pass before this step"
    )
    return failed(
        "gradients_missing",
        f"scaler.step({_opt(part)}) found no gradients in the {part}: {why}, the step came too early, or the "
        "gradients were cleared again",
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
    "_scale is None": rules.loss.loss_not_scaled(
        "scaler.step was called, but nothing had been multiplied by scaler.scale", hint=_SCALE_BOTH
    ),
    "step() has already been called since the last update": rules.scaler.no_update(_ONE_UPDATE),
    "unscale_() is being called after step": rules.scaler.no_update(_ONE_UPDATE),
    "No inf checks were recorded prior to update": rules.scaler.update_without_step(
        "without a scaler.step(optimizer) before it", _ONE_UPDATE
    ),
    "backward through the graph a second time": rules.loss.graph_used_twice(
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
    "Attempting to unscale FP16 gradients": rules.dtypes.half_parameters(),
    "does not require grad": rules.loss.no_graph(),
    "outputs must be a Tensor or an iterable": rules.loss.scale_needs_a_tensor(),
}
