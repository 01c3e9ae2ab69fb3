"""The tape of what a training loop did to the watched parameters: events, in order."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

CallName = Literal[
    "GradScaler",
    "scale",
    "unscale_",
    "unscaled",
    "scaler.step",
    "update",
    "updated",
    "zero_grad",
    "clip",
    "optimizer.step",
    "stepped",
]


@dataclass(frozen=True)
class Forward:
    """One forward pass of a watched model: in which dtype it ran, and on which weights.

    ``inputs`` is a float32 copy on the CPU, of the shape that the model was given, in ``input_dtype``.
    ``autocast_dtype`` is None where autocast was off. ``stale`` says that a weight was older than the last
    step, ``own_model`` that the weights were the watched ones and no copy, ``graph`` that a backward pass
    could follow.
    """

    part: str
    inputs: Tensor
    autocast_dtype: torch.dtype | None
    parameter_dtype: torch.dtype
    stale: bool
    training: bool
    own_model: bool
    graph: bool = True
    input_dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Loss:
    """One call of the loss function that a backward pass can start from.

    ``weights`` holds all watched parameters at that moment: a flat float32 tensor on the CPU, one element per
    weight.
    """

    value: float
    dtype: torch.dtype
    autocast: bool
    weights: Tensor


@dataclass
class Backward:
    """One backward pass through a loss: the gradient it started with, and what it left in ``.grad``.

    ``start_gradient`` is the derivative of what the learner called ``backward`` on by the loss: the loss
    scale, if all is well. ``leftover`` holds the indices of the parameters whose gradients were not zero
    before it. ``gradients`` maps the index of each parameter that it reached to a copy of ``.grad`` as it
    left it, in the parameter's shape, dtype and device. ``loss`` is the number of that loss, from 0: one
    backward pass of the learner's through several losses is one of these for each, and the last to begin has
    the gradients.
    """

    start_gradient: float
    autocast: bool
    leftover: frozenset[int]
    gradients: dict[int, Tensor] = field(default_factory=dict)
    loss: int = 0


@dataclass(frozen=True)
class Call:
    """One call of a method of a scaler or an optimizer, or of clipping, with the gradients that it found.

    ``owner`` tells objects apart; ``scale`` is a scaler's scale at that moment, 1 when it is disabled or for
    an optimizer, and ``clean_steps`` what it has counted since the scale last changed; ``in_step`` says that
    ``scaler.step`` made this call. ``dtype`` and ``elements`` describe
    the tensor that ``scale`` was given, ``made_by`` names the last operations on it, the last one first;
    ``arguments`` counts what ``scaler.step`` got beside the optimizer, and ``optimizer`` is that one's id.
    ``norm`` is what clipping took for the norm of the gradients, NaN for other calls.
    ``gradients`` holds all watched gradients: a flat float32 tensor on the CPU, one element per weight,
    zeros where there are none.
    """

    name: CallName
    owner: int
    scale: float = 1.0
    clean_steps: int = 0
    enabled: bool = True
    in_step: bool = False
    autocast: bool = False
    dtype: torch.dtype | None = None
    elements: int = 1
    made_by: tuple[str, ...] = ()
    arguments: int = 0
    optimizer: int = 0
    norm: float = math.nan
    gradients: Tensor | None = None


Event = Forward | Loss | Backward | Call


class Tape:
    """Everything that happened to the watched parameters, in order, plus remarks on style."""

    def __init__(self, parameters: Sequence[nn.Parameter], device_type: str) -> None:
        self.parameters = list(parameters)
        self.device_type = device_type
        self.events: list[Event] = []
        self.deprecated: set[str] = set()
        self.hard_coded: set[str] = set()
        self.autocast_dtypes: set[torch.dtype] = set()  # asked for; PyTorch may have refused
        self.autocast_devices: list[Any] = []  # what autocast was given, the very objects
        self.losses_without_graph = 0
        self._stepping = 0
        self._owners: list[Any] = []

    def __deepcopy__(self, memo: Any) -> Tape:
        return self  # a copy of a model reports to the same tape, as a copy

    def add(self, make: Callable[[], Event]) -> None:
        """Append what ``make`` observes; if that fails, it must not become the learner's exception."""
        with contextlib.suppress(Exception):
            self.events.append(make())

    def autocast_on(self) -> bool:
        """Whether autocast is enabled for this tape's device, here and now."""
        return torch.is_autocast_enabled(self.device_type)

    def weights(self) -> Tensor:
        """Copy all watched parameters into one flat float32 tensor on the CPU, one element per weight."""
        return torch.cat([p.detach().reshape(-1).float().cpu() for p in self.parameters])

    def gradients(self) -> Tensor:
        """Copy all watched gradients as ``weights`` does, zeros where there are none."""
        return flat(self.parameters, [p.grad for p in self.parameters])

    def call(self, name: CallName, owner: Any, **seen: Any) -> None:
        """Record a call of a scaler's or an optimizer's method."""
        self._owners.append(owner)  # an object that lives on keeps its id to itself
        self.add(
            lambda: Call(
                name,
                id(owner),
                in_step=self._stepping > 0,
                autocast=self.autocast_on(),
                gradients=self.gradients(),
                **seen,
            )
        )

    @contextlib.contextmanager
    def stepping(self) -> Iterator[None]:
        """Mark what happens inside as the doing of ``scaler.step``."""
        self._stepping += 1
        try:
            yield
        finally:
            self._stepping -= 1

    def watch_loss(self, loss: Tensor) -> None:
        """Record ``loss``, and every backward pass that goes through it."""
        if not loss.requires_grad:
            self.losses_without_graph += 1
            return
        number = sum(isinstance(event, Loss) for event in self.events)
        self.add(lambda: Loss(float(loss.detach()), loss.dtype, self.autocast_on(), self.weights()))
        loss.register_hook(lambda start_gradient: self._backward_began(start_gradient, number))

    def _backward_began(self, start_gradient: Tensor, loss: int) -> None:
        def observe() -> Backward:
            leftover = {
                i for i, p in enumerate(self.parameters) if p.grad is not None and bool((p.grad != 0).any())
            }
            start = float(start_gradient.sum())
            return Backward(start, self.autocast_on(), frozenset(leftover), loss=loss)

        self.add(observe)

    def gradient_accumulated(self, index: int, parameter: Tensor) -> None:
        """Keep a copy of a gradient as the backward pass under way left it."""
        last = next((event for event in reversed(self.events) if isinstance(event, Backward)), None)
        if last is not None and parameter.grad is not None:
            last.gradients[index] = parameter.grad.detach().clone()


# An owner, the name of its method, and what makes the spy from a tape and the original.
Patch = tuple[Any, str, Callable[[Tape, Any], Any]]


def flat(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """Join gradients into one flat float32 tensor on the CPU, one element per weight, zeros for None."""
    parts = [
        torch.zeros(p.numel()) if g is None else g.detach().to_dense().reshape(-1).float().cpu()
        for p, g in zip(parameters, gradients, strict=True)
    ]
    return torch.cat(parts)
