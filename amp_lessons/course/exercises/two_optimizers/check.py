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

from amp_lessons._base.worker.client import Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.course.exercises import loops_there
from amp_lessons.course.exercises.attempt import Rejected, require_none
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

_THERE = gan_there.__name__
_LOSSES = "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1)"
_RETURN = "return d_loss.item(), g_loss.item(), in this order and before they are scaled"
_DEVICE_HINT = "write torch.autocast(device_type, …)"

_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_POISON = 1e6  # more than fp16 holds
_CALLS = 3
with torch.device("meta"):
    _SIZES = [sum(p.numel() for p in Part(name).parameters()) for name in PARTS]
# No two causes of a wrong update share a factor: neither a scale nor their ratio is the batch size, or a
# half. The scale first changes after each step, so that order shows, then only by an overflow.
_GROWING = {"init_scale": 8.0, "growth_interval": 1, "growth_factor": 3.0}
_KEPT = {"init_scale": 1024.0, "growth_interval": 1000, "growth_factor": 3.0}
# mistakes that leave weights right: no gradient here is small enough to vanish
_WITHOUT_A_TRACE = {
    "loss_in_half",
    "loss_not_scaled",
    "loss_outside_autocast",
    "one_big_autocast",
    "overflow_hidden",
    "scaler_recreated",
}
# what the audit says of numbers that the check has computed itself
_SYMPTOMS = {"always_overflows", "gradients_all_zero", "weights_broken"}


@dataclass(frozen=True)
class _Problem:
    """A dtype, a scaler's arguments, and the network that the second call overflows in, if any."""

    dtype: torch.dtype
    scaler: dict[str, Any]
    poisoned: str | None = None

    def drawn(self, draw: torch.Generator) -> dict[str, Any]:
        """Return what the worker is given."""
        weights = [torch.randn(size, generator=draw) * 0.5 for size in _SIZES]
        batches = [
            (
                torch.randn(BATCH, FEATURES, generator=draw) * 0.7 + 0.5,
                torch.randn(BATCH, NOISE, generator=draw),
            )
            for _ in range(_CALLS)
        ]
        if self.poisoned is not None:
            real, noise = batches[1]
            by = _POISON if self.poisoned == "discriminator" else 1.0
            batches[1] = real * by, noise * (_POISON / by)
        scaler = {**self.scaler, "enabled": self.dtype == torch.float16}
        return {"weights": weights, "batches": batches, "dtype": self.dtype, "scaler": scaler}


_PROBLEMS = (
    _Problem(torch.float16, _GROWING),
    _Problem(torch.float16, _GROWING),
    _Problem(torch.bfloat16, _GROWING),
    _Problem(torch.float16, _KEPT, "discriminator"),
    _Problem(torch.float16, _KEPT, "generator"),
)


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step train both networks a few times, and hold every call against the true gradients.

    A mistake that the numbers show is named by the audit, where it knows one that leads to them.
    """
    gan_step = function(worker, "gan_step", *[None] * 7, device_type=None, dtype=None)
    cuda: set[str] = set()
    old: set[str] = set()
    remarks: dict[Finding, None] = {}
    lowered = ", and the scale was lowered"
    for problem in _PROBLEMS:
        given = problem.drawn(draw)
        told, _ = gan_step.called_by(f"{_THERE}:watched", extra=(given,))
        for number, seen in enumerate(told["calls"]):
            poisoned = problem.poisoned if number == 1 else None
            real, noise = given["batches"][number]
            call = GanCall(seen, problem.dtype, real, noise, poisoned)
            require_none(_conduct(call))
            if (mistake := first(_by_numbers(call))) is not None:
                raise Rejected(_with_cause(mistake, first(_audited(worker, given))))
            remarks |= dict.fromkeys(_inputs_cast(call) if poisoned is None else ())
            if poisoned and not call.scaled:
                costs = ", both networks miss a step where the loss of one of them is not finite"
                remarks[rules.scaler.batch_left_out(costs)], lowered = None, ""
        cuda |= set(told["cuda"])
        old |= set(told["old"])
    require_none(found for found in _audited(worker, given) if found.code in _WITHOUT_A_TRACE)
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


def _audited(worker: Worker, given: dict[str, Any]) -> Iterator[Finding]:
    """List the mistakes that the audit sees in the step's training."""
    told = worker.call(f"{loops_there.__name__}:audited", Handle(0), given, f"{_THERE}:train")
    for code, message, hint, line in told:
        if code not in _SYMPTOMS:
            yield failed(code, f"{message} [{line}]" if line else message, hint)


def _with_cause(mistake: Finding, cause: Finding | None) -> Finding:
    """Put what the audit says before what the numbers, or an exception, say."""
    if cause is None:
        return mistake
    return replace(cause, message=f"{cause.message}; beside it, {mistake.message}")


class GanCall:
    """One call of the learner's step: what there was before, what it did, what it returned.

    ``real`` is (batch, 6) and ``noise`` (batch, 4), too large for fp16 in the network that ``poisoned``
    names. ``before``, ``after`` and ``applied`` (the gradients that the change of the weights amounts to) are
    flat, by network.
    """

    def __init__(
        self, told: dict[str, Any], dtype: torch.dtype, real: Tensor, noise: Tensor, poisoned: str | None
    ) -> None:
        self.dtype, self.real, self.noise, self.poisoned = dtype, real, noise, poisoned
        self.before, self.after = (
            dict(zip(PARTS, weights.split(_SIZES), strict=True)) for weights in told["weights"]
        )
        self.applied = {part: (self.before[part] - self.after[part]) / LEARNING_RATE for part in PARTS}
        self.scale, self.scale_after = told["scales"]
        self.scaled, self.frozen = told["scaled"], told["frozen"]
        self.returned, self.raised = told["returned"], told["raised"]
        self.forwards: list[dict[str, Any]] = told["forwards"]

    def close(self, seen: Tensor, wanted: Tensor) -> bool:
        """Whether a gradient is the wanted one, as far as its dtype can tell."""
        return bool((seen - wanted).norm() <= _TOLERANCE[self.dtype] * wanted.norm())


# --- how both networks ran


def _conduct(call: GanCall) -> Iterator[Finding]:
    """Find a network outside autocast, in another dtype or in evaluation mode, and other noise."""
    for each in call.forwards:
        network, ran = f"the {each['part']}", each["autocast"]
        if ran is None:
            yield rules.dtypes.no_autocast(network, dtype_name(call.dtype))
        elif ran != call.dtype:
            yield rules.dtypes.wrong_autocast_dtype(network, dtype_name(ran), call.dtype)
        # for the generator's loss the discriminator may be in evaluation mode
        if not each["training"] and (each["part"] == "generator" or _same(each["inputs"], call.real)):
            yield rules.dtypes.evaluation_mode(f"while the {each['part']} was trained")
        if each["part"] == "generator" and not call.poisoned and not _same(each["inputs"], call.noise):
            yield failed(
                "other_noise",
                "the generator was given other noise than the step was",
                "make the fake images from the noise that is passed in",
            )
    if call.frozen and call.raised is None and not call.poisoned:
        yield rules.dtypes.parameters_frozen(
            "after the step", f"the {call.frozen[0]}'s parameters", "unfreeze them before the step returns"
        )


def _same(seen: Tensor, given: Tensor) -> bool:
    """Whether inputs are the given ones, also after a cast to 16 bits."""
    return seen.shape == given.shape and torch.allclose(seen, given, rtol=0.02, atol=1e-6)


def _inputs_cast(call: GanCall) -> Iterator[Finding]:
    """Remark on noise or real images cast by hand; fake images come out of autocast in 16 bits by right."""
    halved = [each["inputs"] for each in call.forwards if each["input_dtype"] in HALVES.values()]
    for what, inputs in (("the noise was", call.noise), ("the real images were", call.real)):
        if any(_same(each, inputs) for each in halved):
            yield rules.dtypes.inputs_cast(what)


# --- what the step should have done, and what known mistakes make of it


def _by_numbers(call: GanCall) -> Iterator[Finding]:
    """Find what is wrong with weights, scale and losses after one call; the audit may know why."""
    if call.raised is not None:
        yield said_of(as_raised(call.raised), f"in {dtype_name(call.dtype)}")
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
            yield _wrong_update(call, truths, part)
    if any(each["backward_autocast"] for each in call.forwards):
        yield rules.dtypes.backward_in_autocast(dtype_name(call.dtype))
    yield from _wrong_losses(call.returned, [truth.losses for truth in truths])


def _overflow(call: GanCall) -> Iterator[Finding]:
    """Find weights that moved by gradients that are not finite, and a scale that did not fall.

    Fake images that are inf reach the discriminator, too.
    """
    for part in PARTS[:1] if call.poisoned == "discriminator" else PARTS:
        if not torch.equal(call.before[part], call.after[part]):
            yield rules.scaler.overflow_not_skipped(f"the {part}")
    if call.scale_after >= call.scale and call.scaled:
        hint = "call scaler.step for both optimizers also when a loss is not finite: it leaves the step out "
        hint += "by itself, and tells scaler.update() about it"
        yield rules.scaler.scale_never_lowered(call.scale, call.scale_after, hint)


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

    def of_labels(self, real: float | None, fake: float | None, squash: bool = False) -> Tensor:
        """Return the discriminator's gradient under these labels; None leaves a term out."""
        terms = [(self._real, real), (self._fake, fake)]
        losses = [_bce(logits, label, squash) for logits, label in terms if label is not None]
        return _gradient(torch.stack(losses).sum(), self._old)

    def of_label(self, label: float, squash: bool = False) -> Tensor:
        """Return the generator's gradient under this label."""
        return _gradient(_bce(self._judged, label, squash), self._generator)

    def suspects(self, part: str) -> Iterator[tuple[Tensor, Finding]]:
        """List the updates that known mistakes with a network's loss make of it, as gradients."""
        if part == "generator":
            yield self.of_label(1) + _gradient(_bce(self._undetached, 0), self._generator), _NO_DETACH
            yield self.of_label(0), _other_labels("generator", "label 0 for fake images")
            yield self.of_label(1, squash=True), _sigmoid_twice(part)
            return
        yield self.of_labels(1, 0) + _gradient(_bce(self._undetached, 1), self._old), _POLLUTED
        yield self.of_labels(1, 0, squash=True), _sigmoid_twice(part)
        yield self.of_labels(1, None), _other_labels(part, "real images alone")
        for real, fake in ((0.0, 1.0), (0.9, 0.0), (1.0, 0.1), (0.9, 0.1)):  # the last ones as smoothing does
            labels = f"label {real:g} for real images and {fake:g} for fake images"
            yield self.of_labels(real, fake), _other_labels(part, labels)


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


def _other_labels(part: str, labels: str) -> Finding:
    return failed(
        "other_labels",
        f"the {part} was trained on another loss than was asked for: its update is that of {labels}",
        "real images have label 1 and fake ones 0; the generator aims at label 1",
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


def _gradient(loss: Tensor, part: nn.Module) -> Tensor:
    gradients = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True)
    return torch.cat([g.reshape(-1) for g in gradients])


def _wrong_update(call: GanCall, truths: list[Truth], part: str) -> Finding:
    """Name the mistake in a loss that makes a network's update, or say how far that is from the right one."""
    applied = call.applied[part]
    for truth in truths:
        for made, cause in truth.suspects(part):
            if call.close(applied, made):
                return cause
    wanted = truths[0].wanted[part]
    off, long = (float(each.norm() / wanted.norm()) for each in (applied - wanted, applied))
    how_far = f"it is {long:.3g} times as long, and {off:.0%} off"
    if call.close(applied, long * wanted):
        how_far = f"it is {long:.3g} times that" if long else "its weights did not change"
    return rules.steps.wrong_update(f"the {part}'s update", how_far, _LOSSES)


def _wrong_losses(returned: Any, rights: list[tuple[float, ...]]) -> Iterator[Finding]:
    two = isinstance(returned, (tuple, list)) and len(returned) == 2
    found = [float_in(each) for each in returned if not isinstance(each, Tensor)] if two else []
    seen = [each for each in found if each is not None]
    if len(seen) != 2:
        yield common_findings.wrong_return_type("two floats were", described(returned), _RETURN)
    near = partial(math.isclose, rel_tol=0.02)
    if not all(any(near(value, losses[place]) for losses in rights) for place, value in enumerate(seen)):
        d_loss, g_loss = rights[0]
        said = f"the step returned ({seen[0]:.4g}, {seen[1]:.4g}) instead of ({d_loss:.4g}, {g_loss:.4g})"
        yield failed("wrong_losses", said, _RETURN)
