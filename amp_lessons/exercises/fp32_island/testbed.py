"""A model with one operation that overflows fp16, and what it sees of a pass under autocast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from amp_lessons.exercises.attempt import outcome_of
from amp_lessons.exercises.containment.sandbox import Outcome
from amp_lessons.exercises.watching.spying import spying
from amp_lessons.exercises.watching.tape import Tape, device_type
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES


@dataclass(frozen=True)
class Place:
    """The dtype of a call's input, and the 16-bit dtype that autocast casts to there, if it does."""

    dtype: torch.dtype
    autocast: torch.dtype | None


def _place(given: Tensor) -> Place:
    device = given.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    # in fp32, which CUDA's allows, autocast is as good as off
    return Place(given.dtype, dtype if dtype in HALVES.values() else None)


@dataclass
class DtypesSeen:
    """The dtypes that each part of the model met in one forward pass, call by call."""

    body: list[torch.dtype] = field(default_factory=list)
    head: list[torch.dtype] = field(default_factory=list)
    normalise: list[Place] = field(default_factory=list)
    inside: list[tuple[str, Place | None]] = field(default_factory=list)  # the linear layer that is running


class Energy(nn.Module):
    """Two linear layers around a normalisation by the energy of each row, which overflows fp16."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(8, 32)
        self.head = nn.Linear(32, 4)
        self.seen = DtypesSeen()
        for name, layer in (("body", self.body), ("head", self.head)):
            layer.register_forward_pre_hook(partial(self._enter, name))
            layer.register_forward_hook(partial(self._leave, name))

    def _enter(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        given = inputs[0] if inputs else None
        self.seen.inside.append((name, _place(given) if isinstance(given, Tensor) else None))

    def _leave(self, name: str, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self.seen.inside.pop()
        getattr(self.seen, name).append(output.dtype)

    def normalise(self, hidden: Tensor) -> Tensor:
        """Divide each row of (batch, 32) by its norm, computed as a matrix product of the row with itself."""
        self.seen.normalise.append(_place(hidden))
        energy = hidden.unsqueeze(-2) @ hidden.unsqueeze(-1)
        return hidden / energy.squeeze(-1).sqrt()

    def reference(self, x: Tensor) -> Tensor:
        """Compute the same in fp32 throughout."""
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.body(x)
            return self.head(hidden / hidden.norm(dim=-1, keepdim=True))


@dataclass(frozen=True)
class Pass:
    """A pass through a learner's forward under autocast in ``dtype``; fp32 stands for no autocast.

    ``given`` is the input, of shape (6, 8), and ``left`` what it was afterwards. ``layers_before`` holds
    the weights and biases from before it, by name, each with a copy.
    """

    model: Energy
    dtype: torch.dtype
    given: Tensor
    left: Tensor
    layers_before: dict[str, tuple[nn.Parameter, Tensor]]
    outcome: Outcome
    seen: DtypesSeen
    tape: Tape

    @property
    def changed_layers(self) -> Iterator[tuple[str, Literal["cast", "replaced", "changed"]]]:
        """Yield the name of each weight or bias that is another than before, and what became of it."""
        now = dict(self.model.named_parameters())
        for name, (parameter, before) in self.layers_before.items():
            if name in now and now[name].dtype != before.dtype:
                yield name, "cast"
            elif now.get(name) is not parameter:
                yield name, "replaced"
            elif not torch.equal(parameter, before):
                yield name, "changed"

    @property
    def output(self) -> Any:
        """What forward returned; there is none if it raised."""
        return self.outcome.value[0]

    @property
    def autocast_is_left_on(self) -> bool:
        """Whether autocast was on after forward had returned; there is no answer if it raised."""
        return self.outcome.value[1]

    @property
    def under_autocast(self) -> bool:
        """Whether autocast was on when forward was called."""
        return self.dtype != torch.float32

    @property
    def when(self) -> str:
        """The autocast of this pass, as a message names it."""
        return f"under autocast in {dtype_name(self.dtype)}" if self.under_autocast else "without autocast"


class TestBed:
    """The model with a learner's ``forward``; ``tape`` shows how autocast was used in all passes."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        device = device_type()
        torch.manual_seed(0)
        self.model: Energy = type("Model", (Energy,), {"forward": forward})().to(device)
        draw = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(6, 8, generator=draw).mul(150.0).to(device)
        self.tape = Tape(list(self.model.parameters()), device)

    def run(self, dtype: torch.dtype, *, watched: bool = True) -> Pass:
        """Run forward under autocast in ``dtype``, or without it in fp32.

        Only while it is ``watched``, "cuda" means the device there is.
        """
        self.model.seen = DtypesSeen()
        layers = {name: (each, each.detach().clone()) for name, each in self.model.named_parameters()}
        batch = self.inputs.clone()
        device = batch.device.type  # a string of its own: no literal in the learner's code is this object
        enabled = dtype in HALVES.values()

        def forward() -> tuple[Any, bool]:
            with torch.autocast(device, dtype=dtype if enabled else torch.bfloat16, enabled=enabled):
                return self.model(batch), torch.is_autocast_enabled(device)

        with spying(self.tape) if watched else nullcontext():
            outcome = outcome_of(forward)
        return Pass(self.model, dtype, self.inputs, batch, layers, outcome, self.model.seen, self.tape)

    def effect_of_cuda(self) -> str:
        """Say what a forward that names "cuda" does on the device there is; nothing, if that is right too."""
        if not self.tape.hard_coded:
            return ""
        watched, alone = (self.run(torch.bfloat16, watched=each) for each in (True, False))
        if alone.outcome.error is not None:
            return f"it raises {type(alone.outcome.error).__name__}"
        if torch.equal(watched.output, alone.output):
            return ""
        return "it switches nothing off, and normalise would run in 16 bits"


def refused_dtypes(tape: Tape) -> list[torch.dtype]:
    """List the dtypes in which autocast was asked for though the CPU's refuses them."""
    return sorted(tape.autocast_dtypes - set(HALVES.values()), key=str)
