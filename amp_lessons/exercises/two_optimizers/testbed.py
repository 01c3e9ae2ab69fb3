"""Where a GAN's step runs: on two small networks with an SGD optimizer each, every gradient known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.exercises.attempt import outcome_of
from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.watching.spying import spying
from amp_lessons.exercises.watching.tape import Backward, Call, Event, Forward, Tape, device_type, flat

_NOISE, _FEATURES, _HIDDEN, _BATCH = 4, 6, 12, 10
_POISON = 1e6
LEARNING_RATE = 0.25
BATCH_SIZE = _BATCH
LARGEST_UNSCALED_GRADIENT = 1 / _BATCH  # of a mean of binary cross entropies, by its logits


@dataclass
class PartBackward(Backward):
    """A backward pass through ``part``; ``start_gradient`` is the largest that reached its outputs."""

    part: str = ""


class Part(nn.Module):
    """Two linear layers that report every forward pass, and the backward passes through it, to a tape."""

    def __init__(self, name: str, inputs: int, outputs: int, tape: Tape | None = None) -> None:
        super().__init__()
        self.name, self.tape = name, tape
        self.body = nn.Linear(inputs, _HIDDEN)
        self.head = nn.Linear(_HIDDEN, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, inputs) to (batch, outputs)."""
        hidden = self.body(inputs)
        outputs = self.head(F.silu(hidden))
        tape = self.tape
        if tape is not None and not outputs.requires_grad:
            tape.losses_without_graph += 1
        elif tape is not None:
            tape.add(lambda: self._observe(tape, inputs, hidden))
            outputs.register_hook(lambda g: tape.add(lambda: self._observe_backward(tape, g)))
        return outputs

    def _observe_backward(self, tape: Tape, gradient: Tensor) -> PartBackward:
        largest = float(gradient.detach().abs().max())
        return PartBackward(largest, tape.autocast_on(), frozenset(), part=self.name)

    def _observe(self, tape: Tape, inputs: Tensor, hidden: Tensor) -> Forward:
        return Forward(
            part=self.name,
            inputs=inputs.detach().float().cpu().clone(),
            autocast_dtype=torch.get_autocast_dtype(tape.device_type) if tape.autocast_on() else None,
            parameter_dtype=self.body.weight.dtype,
            stale=is_stale(self.body, inputs, hidden),
            training=self.training,
            own_model=any(self.body.weight is p for p in tape.parameters),
            input_dtype=inputs.dtype,
        )


def optimizer_of(part: str) -> str:
    """Return what the exercise calls the optimizer of the discriminator or of the generator."""
    return f"opt_{part[0]}"


@dataclass(frozen=True)
class GanProblem:
    """One run: how often the step is called, in which dtype, with which scaler.

    Call number ``poisoned_call``, from 0, gives the network ``poisoned_part`` input too large for fp16. No
    two causes of a wrong update may share a factor: neither a scale nor their ratio is the batch size, or a
    half.
    """

    dtype: torch.dtype
    seed: int
    init_scale: float = 8.0
    growth_interval: int = 1
    growth_factor: float = 3.0
    calls: int = 3
    poisoned_call: int | None = None
    poisoned_part: str | None = None


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
    outcome: Outcome
    events: list[Event]
    forwards_without_graph: int
    frozen: tuple[str, ...]
    poisoned: str | None
    optimizers: dict[str, int]
    scaler_id: int

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


class Gan:
    """Both networks, their optimizers and one scaler, over several calls of the learner's step."""

    def __init__(self, problem: GanProblem) -> None:
        self.problem, self.device = problem, device_type()
        self._draw = torch.Generator().manual_seed(problem.seed)
        self.discriminator = self._made(Part("discriminator", _FEATURES, 1))
        self.generator = self._made(Part("generator", _NOISE, _FEATURES))
        self.parameters = [*self.discriminator.parameters(), *self.generator.parameters()]
        self.opt_d = torch.optim.SGD(self.discriminator.parameters(), lr=LEARNING_RATE)
        self.opt_g = torch.optim.SGD(self.generator.parameters(), lr=LEARNING_RATE)
        self.scaler = torch.amp.GradScaler(
            self.device,
            init_scale=problem.init_scale,
            growth_interval=problem.growth_interval,
            growth_factor=problem.growth_factor,
            enabled=problem.dtype == torch.float16,
        )
        self.tape = Tape(self.parameters, self.device)
        self.discriminator.tape = self.generator.tape = self.tape

    def _made(self, part: Part) -> Part:
        with torch.no_grad():
            for parameter in part.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=self._draw) * 0.5)
        return part.to(self.device)

    def weights(self) -> Weights:
        """Copy the weights of both networks."""
        return Weights(_joined(self.discriminator), _joined(self.generator))

    def gradients(self) -> Weights:
        """Copy the gradients of both networks, zeros where there are none."""
        return Weights(*(_joined_gradients(part) for part in (self.discriminator, self.generator)))

    def train(self, step: Callable[..., Any]) -> Iterator[GanCall]:
        """Let ``step`` make one step after another, and say of each what it did.

        Raises Rejected if it is still the stub, or does what no attempt may do.
        """
        for number in range(self.problem.calls):
            poisoned = self.problem.poisoned_part if number == self.problem.poisoned_call else None
            yield self._call(step, poisoned)

    def _call(self, step: Callable[..., Any], poisoned: str | None) -> GanCall:
        real = torch.randn(_BATCH, _FEATURES, generator=self._draw) * 0.7 + 0.5
        noise = torch.randn(_BATCH, _NOISE, generator=self._draw)
        before, leftover, scale = self.weights(), self.gradients(), self.scaler.get_scale()
        outcome = self._outcome(
            step,
            real * (_POISON if poisoned == "discriminator" else 1),
            noise * (_POISON if poisoned == "generator" else 1),
        )
        return GanCall(
            dtype=self.problem.dtype,
            real=real,
            noise=noise,
            before=before,
            leftover=leftover,
            after=self.weights(),
            scale=scale,
            scale_after=self.scaler.get_scale(),
            outcome=outcome,
            events=list(self.tape.events),
            frozen=tuple(
                part.name
                for part in (self.discriminator, self.generator)
                if not all(parameter.requires_grad for parameter in part.parameters())
            ),
            forwards_without_graph=self.tape.losses_without_graph,
            poisoned=poisoned,
            optimizers={"discriminator": id(self.opt_d), "generator": id(self.opt_g)},
            scaler_id=id(self.scaler),
        )

    def _outcome(self, step: Callable[..., Any], real: Tensor, noise: Tensor) -> Outcome:
        self.tape.events.clear()
        self.tape.losses_without_graph = 0
        with spying(self.tape):
            return outcome_of(
                step,
                self.generator,
                self.discriminator,
                self.opt_g,
                self.opt_d,
                self.scaler,
                real.to(self.device),
                noise.to(self.device),
                device_type=self.device,
                dtype=self.problem.dtype,
            )


def _joined(part: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).float().cpu() for p in part.parameters()])


def _joined_gradients(part: nn.Module) -> Tensor:
    parameters = list(part.parameters())
    return flat(parameters, [p.grad for p in parameters])


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
    generator = _rebuilt(_NOISE, _FEATURES, call.before.generator)
    d_old = _rebuilt(_FEATURES, 1, call.before.discriminator)
    d_judge = _rebuilt(_FEATURES, 1, discriminator_weights)
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
