"""What a GAN's step did, call by call, and what it should have done: every gradient is known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons._base.worker.client import Raised
from amp_lessons.exercises.bed import as_raised
from amp_lessons.exercises.two_optimizers.gan_there import (
    BATCH,
    FEATURES,
    LEARNING_RATE,
    NOISE,
    Part,
    PartBackward,
)
from amp_lessons.exercises.two_optimizers.tape_there import Backward, Call, Event, Forward, Loss

LARGEST_UNSCALED_GRADIENT = 1 / BATCH  # of a mean of binary cross entropies, by its logits
_EVENTS = {each.__name__: each for each in (Forward, Loss, Backward, PartBackward, Call)}


def _event(told: Any) -> Event:
    name, fields = told
    if "leftover" in fields:
        fields = {**fields, "leftover": frozenset(fields["leftover"])}
    return _EVENTS[name](**fields)


def optimizer_of(part: str) -> str:
    """Return what the exercise calls the optimizer of the discriminator or of the generator."""
    return f"opt_{part[0]}"


@dataclass(frozen=True)
class Weights:
    """The weights of both networks, or a gradient for each: flat float32 tensors on the CPU."""

    discriminator: Tensor
    generator: Tensor


@dataclass(frozen=True)
class Pass:
    """A backward pass through the discriminator's outputs, on behalf of ``part``.

    ``largest`` is the largest gradient that reached them, ``scale`` that of the last loss scaled before.
    """

    part: str
    largest: float
    scale: float


@dataclass(frozen=True)
class GanCall:
    """One call of the learner's step: what there was before, what it did, what it returned.

    ``real`` is (batch, 6) and ``noise`` (batch, 4), both before poisoning; ``leftover`` are the gradients
    that were there before, ``frozen`` names networks left with ``requires_grad=False``. ``poisoned`` names
    the network whose input was too large for fp16, if one was.
    """

    dtype: torch.dtype
    real: Tensor
    noise: Tensor
    before: Weights
    leftover: Weights
    after: Weights
    scale: float
    scale_after: float
    returned: Any
    raised: Raised | None
    events: list[Event]
    forwards_without_graph: int
    frozen: tuple[str, ...]
    poisoned: str | None
    optimizers: dict[str, int]
    scaler_id: int

    @staticmethod
    def of(told: dict[str, Any], dtype: torch.dtype) -> GanCall:
        """Read what a worker tells of a call."""
        weights = {name: Weights(*told[name]) for name in ("before", "leftover", "after")}
        raised = None if told["raised"] is None else as_raised(told["raised"])
        rest = {
            "frozen": tuple(told["frozen"]),
            "events": list(map(_event, told["events"])),
            "raised": raised,
        }
        return GanCall(**{**told, **weights, **rest, "dtype": dtype})

    def calls(self, *names: str) -> list[Call]:
        """List the calls of these names, from first to last."""
        return [event for event in self.events if isinstance(event, Call) and event.name in names]

    def position(self, wanted: Event) -> int:
        """Return where in ``events`` this very event stands: events hold tensors, and are not compared."""
        return next(i for i, event in enumerate(self.events) if event is wanted)

    def steps_of(self, part: str) -> list[Call]:
        """List the steps that the optimizer of a network made, through the scaler or past it."""
        return [each for each in self.calls("optimizer.step") if each.owner == self.optimizers[part]]

    def gradients_at(self, step: Call, part: str) -> Tensor:
        """Return the gradients of a network, flat, that a step found."""
        assert step.gradients is not None
        size = self.before.discriminator.numel()
        return step.gradients[:size] if part == "discriminator" else step.gradients[size:]

    @property
    def passes(self) -> list[Pass]:
        """The backward passes through the discriminator's outputs, each with the network it was for."""
        found: list[Pass] = []
        scale = 1.0
        for event in self.events:
            if isinstance(event, Call) and event.name == "scale":
                scale = event.scale
            if isinstance(event, PartBackward) and event.part == "discriminator":
                found.append(Pass("discriminator", event.start_gradient, scale))
            elif isinstance(event, PartBackward) and found:
                found[-1] = replace(found[-1], part="generator")
        return found

    @property
    def applied(self) -> Weights:
        """The gradients that the changes of the weights amount to."""
        return Weights(
            (self.before.discriminator - self.after.discriminator) / LEARNING_RATE,
            (self.before.generator - self.after.generator) / LEARNING_RATE,
        )


@dataclass(frozen=True)
class Truth:
    """The losses of one step and their gradients: flat float32 tensors on the CPU, a network's joined.

    ``real`` and ``fake`` are the discriminator's gradients of its two terms, ``pollution`` is what the
    generator's loss would add to the discriminator, ``undetached`` what the discriminator's loss would add to
    the generator; ``swapped`` are gradients under exchanged labels, ``squashed`` with a sigmoid before the
    loss. ``lifts`` has the gradients of the mean logits, by which an update is off for every unit a label is
    off: for the discriminator those on real and on fake images, for the generator on its own. ``largest`` is
    the largest gradient of each loss by a logit.
    """

    d_loss: float
    g_loss: float
    real: Tensor
    fake: Tensor
    generator: Tensor
    pollution: Tensor
    undetached: Tensor
    swapped: Weights
    squashed: Weights
    lifts: dict[str, list[Tensor]]
    largest: dict[str, float]


def truth(call: GanCall, discriminator_weights: Tensor) -> Truth:
    """Compute what a step should do, the generator judged by a discriminator with the given weights."""
    generator = _rebuilt(NOISE, FEATURES, call.before.generator)
    d_old = _rebuilt(FEATURES, 1, call.before.discriminator)
    d_judge = _rebuilt(FEATURES, 1, discriminator_weights)
    fake = generator(call.noise)
    on_real, on_fake, judged = d_old(call.real), d_old(fake), d_judge(fake)
    real_loss, fake_loss, g_loss = _bce(on_real, 1.0), _bce(on_fake, 0.0), _bce(judged, 1.0)
    return Truth(
        d_loss=float(real_loss + fake_loss),
        g_loss=float(g_loss),
        real=_gradient(real_loss, d_old),
        fake=_gradient(fake_loss, d_old),
        generator=_gradient(g_loss, generator),
        pollution=_gradient(g_loss, d_judge),
        undetached=_gradient(fake_loss, generator),
        swapped=Weights(
            _gradient(_bce(on_real, 0.0) + _bce(on_fake, 1.0), d_old), _gradient(_bce(judged, 0.0), generator)
        ),
        squashed=Weights(
            _gradient(_bce(on_real.sigmoid(), 1.0) + _bce(on_fake.sigmoid(), 0.0), d_old),
            _gradient(_bce(judged.sigmoid(), 1.0), generator),
        ),
        lifts={
            "discriminator": [_gradient(logits.mean(), d_old) for logits in (on_real, on_fake)],
            "generator": [_gradient(judged.mean(), generator)],
        },
        largest={
            "discriminator": max(_largest(on_real, 1.0), _largest(on_fake, 0.0)),
            "generator": _largest(judged, 1.0),
        },
    )


def _largest(logits: Tensor, label: float) -> float:
    return float((logits.sigmoid() - label).abs().max()) / len(logits)


def _rebuilt(inputs: int, outputs: int, weights: Tensor) -> Part:
    part = Part("reference", inputs, outputs)
    nn.utils.vector_to_parameters(weights.clone(), part.parameters())
    return part


def _bce(logits: Tensor, label: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


def _gradient(loss: Tensor, part: nn.Module) -> Tensor:
    gradients = torch.autograd.grad(loss, list(part.parameters()), retain_graph=True)
    return torch.cat([g.reshape(-1) for g in gradients])
