"""Two networks, two optimizers, one scaler: the GAN step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, failed, first, passed
from amp_lessons.audit.rules.scaler import batch_left_out
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.loops import audited, with_audit
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

_TRAIN = f"{gan_there.__name__}:train"
_BOTH_LOSSES = (
    "discriminator: BCE(D(real), 1) + BCE(D(fake.detach()), 0); generator: BCE(D(fake), 1); each a mean, of "
    "logits; let nothing but backward and the step touch gradients and weights"
)
_TOLERANCE = {torch.float16: 0.01, torch.bfloat16: 0.04}
_POISON = 1e6  # more than fp16 holds
_CALLS = 3
with torch.device("meta"):
    _SIZES = [sum(p.numel() for p in Part(name).parameters()) for name in PARTS]
# No two causes of a wrong update share a factor: neither a scale nor their ratio is the batch size, or a
# half. The scale first changes after each step, so that order shows, then only by an overflow.
_GROWING = {"init_scale": 8.0, "growth_interval": 1, "growth_factor": 3.0}
_KEPT = {"init_scale": 1024.0, "growth_interval": 1000, "growth_factor": 3.0}
_HIDDEN = {"loss_in_half", "loss_not_scaled", "loss_outside_autocast", "one_big_autocast"}
"""What may leave the updates of so small a training right; the audit sees it."""


@dataclass(frozen=True)
class _Problem:
    """A dtype, a scaler's arguments, and the network that the second call overflows in, if any."""

    dtype: torch.dtype
    scaler: dict[str, Any]
    poisoned: str | None = None

    def drawn(self, draw: torch.Generator) -> tuple[dict[str, Any], list[tuple[Tensor, Tensor]]]:
        """Return what the worker is given, and the batches as they were before one was poisoned."""
        weights = [torch.randn(size, generator=draw) * 0.5 for size in _SIZES]
        batches = []
        for _ in range(_CALLS):
            real = torch.randn(BATCH, FEATURES, generator=draw) * 0.7 + 0.5
            batches.append((real, torch.randn(BATCH, NOISE, generator=draw)))
        (real, noise), given = batches[1], list(batches)
        if self.poisoned == "discriminator":
            given[1] = real * _POISON, noise
        if self.poisoned == "generator":
            given[1] = real, noise * _POISON
        scaler = {**self.scaler, "enabled": self.dtype == torch.float16}
        return {"weights": weights, "batches": given, "dtype": self.dtype, "scaler": scaler}, batches


_PROBLEMS = (
    _Problem(torch.float16, _GROWING),
    _Problem(torch.float16, _GROWING),
    _Problem(torch.bfloat16, _GROWING),
    _Problem(torch.float16, _KEPT, "discriminator"),
    _Problem(torch.float16, _KEPT, "generator"),
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step train both networks a few times, and hold every call against the true gradients."""
    bed.function(worker, "gan_step", *[None] * 7, device_type=None, dtype=None)
    cuda: set[str] = set()
    left_out = False
    for problem in _PROBLEMS:
        given, batches = problem.drawn(draw)
        told = bed.asked(worker, _TRAIN, bed.Handle(0), given)
        if told["left"]:
            raise bed.Rejected(common_findings.leaving(told["left"]))
        for number, seen in enumerate(told["calls"]):
            poisoned = problem.poisoned if number == 1 else None
            call = GanCall(seen, told["owners"], problem.dtype, batches[number], poisoned)
            if mistake := first(_mistakes(call)):
                line = bed.as_raised(call.raised).line if call.raised else ""
                raise bed.Rejected(with_audit(mistake, audited(worker, given, _TRAIN), line=line))
            left_out = left_out or bool(poisoned and not call.calls("scale"))
        cuda |= set(told["cuda"])
    for code, message, hint, line in audited(worker, given, _TRAIN):
        if code in _HIDDEN:
            raise bed.Rejected(failed(code, f"{message} [{line}]" if line else message, hint))
    place = common_findings.in_place_of_cuda(cuda, "autocast", "cpu")
    said = f"both networks ran under autocast{place} in the dtype asked for, backward outside it"
    yield passed("precision", said)
    yield passed("discriminator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("generator", "its updates are SGD on its own loss, whatever the scale did")
    yield passed("overflow", "an overflow in a network left its weights alone")
    yield passed("losses", "both losses are returned, unscaled")
    if left_out:
        yield batch_left_out(", both networks miss a step where the loss of one of them is not finite")
    if cuda:
        effect = "PyTorch would only warn and switch autocast off"
        yield common_findings.cuda_replaced("device_type", effect, "write torch.autocast(device_type, …)")


class GanCall:
    """One call of the learner's step: what there was before, what it did, what it returned.

    ``real`` is (batch, 6) and ``noise`` (batch, 4), both before the network that ``poisoned`` names was given
    too large ones. ``before``, ``after`` and ``applied`` (the gradients that the change of the weights
    amounts to) are flat, by network.
    """

    def __init__(
        self, told: Any, owners: Any, dtype: torch.dtype, batch: tuple[Tensor, Tensor], poisoned: str | None
    ) -> None:
        self.owners, self.dtype, (self.real, self.noise), self.poisoned = owners, dtype, batch, poisoned
        self.before, self.after = map(_by_part, told["weights"])
        self.applied = {part: (self.before[part] - self.after[part]) / LEARNING_RATE for part in PARTS}
        self.scale, self.scale_after = told["scales"]
        self.returned, self.raised, self.frozen = told["returned"], told["raised"], told["frozen"]
        self.events: list[dict[str, Any]] = told["events"]

    def calls(self, *names: str) -> list[dict[str, Any]]:
        """List the calls of these names, from first to last."""
        return [each for each in self.events if each["name"] in names]

    def steps_of(self, part: str) -> list[dict[str, Any]]:
        """List the steps that the optimizer of a network made, through the scaler or past it."""
        return [each for each in self.calls("optimizer.step") if each["owner"] == self.owners[part]]

    def close(self, seen: Tensor, wanted: Tensor) -> bool:
        """Whether a gradient is the wanted one, as far as its dtype can tell."""
        return bool((seen - wanted).norm() <= _TOLERANCE[self.dtype] * wanted.norm())


def _by_part(joined: Tensor) -> dict[str, Tensor]:
    return dict(zip(PARTS, joined.split(_SIZES), strict=True))


def _opt(part: str) -> str:
    return f"opt_{part[0]}"


def _mistakes(call: GanCall) -> Iterator[Finding]:
    """Find the mistakes of one call, root causes first."""
    if call.raised is not None:
        raised = bed.as_raised(call.raised)
        if "same dtype" in raised.text:  # half and float tensors meet where autocast is off
            yield from _precision(call)
            network = "a network, given what another had computed in 16 bits,"
            yield rules.dtypes.no_autocast(network, dtype_name(call.dtype))
        yield bed.said_of(raised, f"in {dtype_name(call.dtype)}")
    yield from _precision(call)
    owners = {each["owner"] for each in call.calls("scale", "scaler.step", "GradScaler")}
    if owners - {call.owners["scaler"]}:
        said = "another GradScaler than the one passed in was used, which does not know that one's scale"
        yield failed("another_scaler", said, "use the scaler that is passed in for both losses")
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
        fake, given = self._generator(call.noise), _rebuilt("generator", making)(call.noise).detach()
        self._real, self._fake = self._old(call.real), self._old(given)
        self._judged, self._undetached = _rebuilt("discriminator", judging)(fake), self._old(fake)
        self.losses = tuple(
            float(each) for each in (_bce(self._real, 1) + _bce(self._fake, 0), _bce(self._judged, 1))
        )
        self.wanted = {
            "discriminator": _gradient(_bce(self._real, 1) + _bce(self._fake, 0), self._old),
            "generator": _gradient(_bce(self._judged, 1), self._generator),
        }

    def suspects(self, part: str) -> Iterator[tuple[Tensor, Finding]]:
        """List the updates that known mistakes make of a network, as gradients."""
        if part == "generator":
            not_detached = _gradient(_bce(self._undetached, 0), self._generator)
            yield self.wanted[part] + not_detached, _NO_DETACH
            yield _gradient(_bce(self._judged, 0), self._generator), _labels_exchanged(part)
        else:
            not_cleared = _gradient(_bce(self._undetached, 1), self._old)
            yield self.wanted[part] + not_cleared, _POLLUTED
            exchanged = _bce(self._real, 0) + _bce(self._fake, 1)
            yield _gradient(exchanged, self._old), _labels_exchanged(part)


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


def _labels_exchanged(part: str) -> Finding:
    said = f"the {part}'s update is that of a loss with the labels 1 and 0 exchanged"
    hint = (
        "in the discriminator's loss real images have label 1 and fake ones 0; the generator aims at label 1"
    )
    return failed("other_labels", said, hint)


def _rebuilt(name: str, weights: Tensor) -> Part:
    part = Part(name)
    nn.utils.vector_to_parameters(weights.clone(), part.parameters())
    return part


def _bce(logits: Tensor, label: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def _gradient(loss: Tensor, part: nn.Module) -> Tensor:
    gradients = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True)
    return torch.cat([g.reshape(-1) for g in gradients])


# --- what is wrong with an update


def _wrong_update(call: GanCall, truths: list[Truth], part: str) -> Iterator[Finding]:
    """Name what is wrong with a network's update, or say by how much it is."""
    applied, update = call.applied[part], f"the {part}'s update"
    for truth in truths:
        for made, cause in truth.suspects(part):
            if call.close(applied, made):
                yield cause
        wanted = truth.wanted[part]
        factor = float(applied @ wanted / (wanted @ wanted))
        if call.close(applied, factor * wanted):
            how = f"it is {factor:.4g} times that"
            yield rules.steps.wrong_update(update, how, _BOTH_LOSSES)
    wanted = truths[0].wanted[part]
    off, long = (applied - wanted).norm() / wanted.norm(), applied.norm() / wanted.norm()
    how = f"it is {long:.3g} times as long, and {off:.0%} off"
    yield rules.steps.wrong_update(update, how, _BOTH_LOSSES)


def _overflow(call: GanCall) -> Iterator[Finding]:
    """Find mistakes where gradients are not finite: weights must stay, and the scale must fall.

    Fake images that are inf reach the discriminator, too.
    """
    for part in PARTS[:1] if call.poisoned == "discriminator" else PARTS:
        optimizer = _opt(part)
        for step in call.steps_of(part):  # also one on zeros, which leaves the weights as they were
            if _by_part(step["gradients"])[part].isfinite().all():
                yield rules.scaler.overflow_hidden(f"the {part}'s gradients")
            how = f"a step of {optimizer} was taken without the scaler's check"
            yield rules.scaler.step_bypasses_scaler(how, f"the {part}'s weights", optimizer)
        if not torch.equal(call.before[part], call.after[part]):
            yield rules.steps.weights_changed(f"the {part} overflowed and {optimizer} did not step")
    if call.scale_after >= call.scale and call.calls("scale"):
        hint = (
            "call scaler.step for both optimizers, then scaler.update(), whatever the losses are: a step on "
            "inf or NaN is left out by itself, and update is told of it"
        )
        yield rules.scaler.scale_never_lowered(call.scale, call.scale_after, hint)


def _wrong_losses(call: GanCall, truths: list[Truth]) -> Iterator[Finding]:
    advice = "return d_loss.item(), g_loss.item(): in this order, and not multiplied by the scale"
    pair = call.returned if isinstance(call.returned, (tuple, list)) else []
    seen = [float_in(each) for each in pair if not isinstance(each, Tensor)]
    if len(pair) != 2 or len(seen) != 2 or None in seen:
        yield common_findings.wrong_return_type("two floats were", bed.described(call.returned), advice)
    rights = zip(*(truth.losses for truth in truths), strict=True)
    for value, right in zip(seen, rights, strict=True):
        if not any(math.isclose(value or 0.0, each, rel_tol=0.02) for each in right):
            said = ["({:.4g}, {:.4g})".format(*both) for both in (seen, truths[0].losses)]
            yield failed("wrong_losses", f"the step returned {said[0]} instead of {said[1]}", advice)


# --- in which dtype both networks ran


def _precision(call: GanCall) -> Iterator[Finding]:
    for each in call.calls("forward"):
        network, ran = f"the {each['part']}", each["autocast"]
        if ran is None:
            of_it = [other["autocast"] for other in call.calls("forward") if other["part"] == each["part"]]
            part = f", in {of_it.count(None)} of its {len(of_it)} passes," if any(of_it) else ""
            yield rules.dtypes.no_autocast(f"{network}{part}", dtype_name(call.dtype))
        elif ran != call.dtype:
            yield rules.dtypes.wrong_autocast_dtype(network, dtype_name(ran), call.dtype)
        # for the generator's loss the discriminator may be in evaluation mode
        trained = each["graph"] and (each["part"] == "generator" or _same(each["inputs"], call.real))
        if trained and not each["training"]:
            yield rules.dtypes.evaluation_mode(f"while the {each['part']} was trained")
    if any(each["autocast"] for each in call.calls("backward")):
        yield rules.dtypes.backward_in_autocast(dtype_name(call.dtype))


def _same(seen: Tensor, given: Tensor) -> bool:
    """Whether inputs are the given ones, also after a cast to 16 bits."""
    return seen.shape == given.shape and torch.allclose(seen, given, rtol=0.02, atol=1e-6)
