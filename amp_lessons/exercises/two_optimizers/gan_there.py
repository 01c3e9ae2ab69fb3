"""Where a GAN's step runs in a worker: on two small networks with an SGD optimizer each, watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from amp_lessons.audit.recorder.stale import is_stale
from amp_lessons.exercises import bed_there
from amp_lessons.exercises.two_optimizers.spying_there import spying
from amp_lessons.exercises.two_optimizers.tape_there import Backward, Event, Forward, Tape, flat

NOISE, FEATURES, BATCH = 4, 6, 10
_HIDDEN = 12
_POISON = 1e6
LEARNING_RATE = 0.25


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


class Gan:
    """Both networks, their optimizers and one scaler, over several calls of the learner's step."""

    def __init__(self, problem: GanProblem) -> None:
        self.problem, self.device = problem, "cpu"
        self._draw = torch.Generator().manual_seed(problem.seed)
        self.discriminator = self._made(Part("discriminator", FEATURES, 1))
        self.generator = self._made(Part("generator", NOISE, FEATURES))
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

    def train(self, step: Callable[..., Any]) -> Iterator[dict[str, Any]]:
        """Let ``step`` make one step after another, until one raises; say of each what it did."""
        for number in range(self.problem.calls):
            poisoned = self.problem.poisoned_part if number == self.problem.poisoned_call else None
            seen = self._call(step, poisoned)
            yield seen
            if seen["raised"] is not None:
                return

    def _call(self, step: Callable[..., Any], poisoned: str | None) -> dict[str, Any]:
        real = torch.randn(BATCH, FEATURES, generator=self._draw) * 0.7 + 0.5
        noise = torch.randn(BATCH, NOISE, generator=self._draw)
        parts = self.discriminator, self.generator
        before, leftover = list(map(_joined, parts)), list(map(_joined_gradients, parts))
        scale = self.scaler.get_scale()
        returned, raised = self._outcome(
            step,
            real * (_POISON if poisoned == "discriminator" else 1),
            noise * (_POISON if poisoned == "generator" else 1),
        )
        return {
            "real": real,
            "noise": noise,
            "before": before,
            "leftover": leftover,
            "after": list(map(_joined, parts)),
            "scale": scale,
            "scale_after": self.scaler.get_scale(),
            "returned": returned,
            "raised": raised,
            "events": [_as_data(each) for each in self.tape.events],
            "frozen": [part.name for part in parts if not all(p.requires_grad for p in part.parameters())],
            "forwards_without_graph": self.tape.losses_without_graph,
            "poisoned": poisoned,
            "optimizers": {"discriminator": id(self.opt_d), "generator": id(self.opt_g)},
            "scaler_id": id(self.scaler),
        }

    def _outcome(self, step: Callable[..., Any], real: Tensor, noise: Tensor) -> tuple[Any, Any]:
        self.tape.events.clear()
        self.tape.losses_without_graph = 0
        networks = self.generator, self.discriminator, self.opt_g, self.opt_d, self.scaler
        with spying(self.tape):
            options = {"device_type": "cpu", "dtype": self.problem.dtype}
            return bed_there.attempted(step, *networks, real, noise, **options)


def train(
    step: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], problem: dict[str, Any]
) -> dict[str, Any]:
    """Let ``step`` train both networks of a ``problem``, a GanProblem's fields; ``args`` are none.

    The result has each call as ``Gan.train`` tells it, and how it spelled what is of one device.
    """
    gan = Gan(GanProblem(**problem))
    called = bed_there.call(lambda: list(gan.train(step)), [], kwargs)
    spelled = {"cuda": sorted(gan.tape.hard_coded), "old": sorted(gan.tape.deprecated)}
    return {**called, "result": {"calls": called["result"], **spelled}, "args": args}


def _as_data(event: Event) -> list[Any]:
    """Return an event as plain data: its class by name, and its fields."""
    told = {each.name: getattr(event, each.name) for each in fields(event)}
    if "leftover" in told:
        told["leftover"] = sorted(told["leftover"])
    return [type(event).__name__, told]


def _joined(part: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1).float() for p in part.parameters()])


def _joined_gradients(part: nn.Module) -> Tensor:
    parameters = list(part.parameters())
    return flat(parameters, [p.grad for p in parameters])
