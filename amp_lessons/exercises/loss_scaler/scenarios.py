"""Clean iterations and overflows, one after another, and what a scaler does in each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.text.describing import describe


@dataclass(frozen=True)
class Overflow:
    """What an iteration with an overflow puts into a gradient, as a number and in words."""

    value: float
    words: str


OVERFLOWS = {
    "inf": Overflow(math.inf, "inf"),
    "-inf": Overflow(-math.inf, "-inf"),
    "nan": Overflow(math.nan, "nan"),
    "last": Overflow(math.inf, "inf in another parameter group"),
    "clip": Overflow(math.inf, "inf when unscale_ was called, and clipped afterwards"),
}
LARGE = 2e38  # a sum of two, and the square of one, is inf in fp32


@dataclass(frozen=True)
class Scenario:
    """What a scaler is made with, and one entry per iteration.

    An entry is ``"."`` for a clean iteration, ``"u"`` for a clean one with an explicit ``unscale_``, ``"c"``
    for one in which gradients are clipped after that, ``"large"`` for one in which two of them are ``LARGE``,
    or a kind of overflow. ``beside_another`` says that in each of them a second scaler is made, and goes
    through an overflow of its own.
    """

    settings: dict[str, Any]
    events: tuple[str, ...]
    beside_another: bool = False


# six clean iterations in a row grow twice, the last overflows bring the scale below 1
_UPS_AND_DOWNS = ". u . . inf . . nan u c . . . . -inf inf . . . last inf . clip ."
SCENARIOS = (
    Scenario(
        {"init_scale": 8.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 3},
        tuple(_UPS_AND_DOWNS.split()),
    ),
    # grows with every iteration, beyond 2**24, where some let it stop, and 2**32
    Scenario(
        {"init_scale": 16.0, "growth_factor": 16.0, "backoff_factor": 0.25, "growth_interval": 1},
        (".",) * 8,
    ),
    Scenario(
        {"init_scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2},
        (".", "u", ".", "clip", ".", "c", "u"),
        beside_another=True,
    ),
    Scenario(
        {"init_scale": 1.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3},
        (".", "large"),  # the last: it takes the weights where nothing can be seen to move them
    ),
)


METHODS = ("scale", "unscale_", "step", "update", "get_scale")


class NoGraphError(Exception):
    """What scale() returned is nothing that backward can start from."""


class NoMethodError(Exception):
    """The scaler has something else than methods under the names ``instead``, or nothing (None)."""

    def __init__(self, instead: dict[str, Any]) -> None:
        super().__init__(instead)
        self.instead = instead


@dataclass(frozen=True)
class Iteration:
    """What could be seen in one iteration, from the scaled loss to the scale after update.

    ``loss`` is what ``scale`` was given, ``loss_after`` what the caller's tensor holds when it has returned.
    Gradients and ``moved``, by which the weights became smaller, are flat tensors of three numbers on the
    CPU; ``unscaled`` is what ``unscale_`` left, where it was called and no gradient overflowed,
    ``left`` what ``step`` left. ``replaced`` says that after ``step`` other tensors stood in ``.grad`` than
    ``backward`` had put there, ``scale_after_step`` is the scale before ``update``. The scales are copies;
    ``scale_kept`` is what ``get_scale`` returned for ``scale_before``, as it is after ``update``.
    """

    event: str
    loss: float
    loss_after: float
    scaled_loss: float
    unscaled: Tensor | None
    moved: Tensor
    left: Tensor
    true_gradient: Tensor
    replaced: bool
    scale_before: float
    scale_kept: Any
    scale_after_step: Any
    scale_after: Any
    steps: int

    @property
    def overflowed(self) -> bool:
        """Whether a gradient was inf or NaN."""
        return self.event in OVERFLOWS


class _Training:
    """Three parameters in two groups of one optimizer, whose steps are counted."""

    def __init__(self) -> None:
        device = device_type()
        self.first = torch.nn.Parameter(torch.tensor([1.0, -2.0], device=device))
        self.second = torch.nn.Parameter(torch.tensor([[0.5]], device=device))
        self.unused = torch.nn.Parameter(torch.zeros(2, device=device))
        groups = [{"params": [self.first, self.unused]}, {"params": [self.second]}]
        self.optimizer = torch.optim.SGD(groups, lr=1.0)
        self.steps = 0
        self.optimizer.register_step_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        # without any gradient a step does nothing, whatever the optimizer
        self.steps += any(p.grad is not None for p in (self.first, self.second, self.unused))

    def loss(self, factors: Tensor) -> Tensor:
        return (self.first * factors.to(self.first.device)).sum() + self.second.sum() * 0.125

    def spoil(self, event: str) -> None:
        parameter = self.second if event == "last" else self.first
        if event in OVERFLOWS and parameter.grad is not None:
            parameter.grad.view(-1)[0] = OVERFLOWS[event].value
        if event == "large" and self.first.grad is not None:
            self.first.grad.fill_(LARGE)

    def clip(self) -> None:
        clipped = [p for p in (self.first, self.second) if p.grad is not None]
        if clipped:  # PyTorch's clipping raises an error of its own where there is nothing to clip
            torch.nn.utils.clip_grad_value_(clipped, 1.0)

    def weights(self) -> Tensor:
        return _joined(self.first, self.second)

    def gradients(self) -> Tensor:
        return _joined_gradient(self.first, self.second)

    def tensors(self) -> list[Tensor]:
        """List the gradients themselves; parameters without one are left out."""
        return [p.grad for p in (self.first, self.second) if p.grad is not None]


def step_through(
    make: Callable[[], Any],
    events: Sequence[str],
    progress: list[str],
    meanwhile: Callable[[], Any] = lambda: None,
) -> list[Iteration]:
    """Take a scaler through the iterations of a scenario. ``progress`` says at any time what is being done.

    ``meanwhile`` is called in each of them, before ``step``.
    Raises NoGraphError if what ``scale`` returns is nothing that backward can start from, and NoMethodError
    if something that cannot be called stands where a method should.
    """
    progress.append("LossScaler(init_scale, growth_factor, backoff_factor, growth_interval)")
    scaler, training = make(), _Training()

    def call(method: str, *args: Any) -> Any:
        _require_methods(scaler)
        progress.append(method)
        return getattr(scaler, method)(*args)

    return [_iteration(call, training, event, count, meanwhile) for count, event in enumerate(events, 1)]


def _require_methods(scaler: Any) -> None:
    """Look before every call: an attribute that hides a method may be set at any time, and called within."""
    found = {name: getattr(scaler, name, None) for name in METHODS}
    instead = {name: value for name, value in found.items() if not callable(value)}
    if instead:
        raise NoMethodError(instead)


_CallMethod = Callable[..., Any]  # of the scaler, by its name


def _iteration(
    call: _CallMethod, training: _Training, event: str, count: int, meanwhile: Callable[[], Any]
) -> Iteration:
    training.optimizer.zero_grad()
    factors = torch.tensor([0.25, -0.5]) * count
    scale_kept = call("get_scale")
    scale_before = _copied(scale_kept)
    loss = training.loss(factors)
    loss_before = float(loss.detach())
    scaled = call("scale", loss)
    loss_after = float(loss.detach())
    _backward(scaled)
    training.spoil(event)
    gradients = training.tensors()
    unscaled = _unscale(call, training, event)
    meanwhile()
    weights, steps = training.weights(), training.steps
    call("step", training.optimizer)
    moved, steps, left = weights - training.weights(), training.steps - steps, training.gradients()
    replaced = any(now is not before for now, before in zip(training.tensors(), gradients, strict=False))
    scale_after_step = _copied(call("get_scale"))
    call("update")
    scale_after = _copied(call("get_scale"))
    return Iteration(
        event=event,
        loss=loss_before,
        loss_after=loss_after,
        scaled_loss=float(scaled.detach()),
        unscaled=unscaled,
        moved=moved,
        left=left,
        true_gradient=torch.cat([factors, torch.tensor([0.125])]),
        replaced=replaced,
        scale_before=scale_before,
        scale_kept=_copied(scale_kept),
        scale_after_step=scale_after_step,
        scale_after=scale_after,
        steps=steps,
    )


def _copied(scale: Any) -> Any:
    return scale.detach().clone() if isinstance(scale, Tensor) else scale


def _backward(scaled: Any) -> None:
    if not isinstance(scaled, Tensor) or scaled.grad_fn is None:
        raise NoGraphError(describe(scaled))
    scaled.backward()


def _unscale(call: _CallMethod, training: _Training, event: str) -> Tensor | None:
    """Unscale and clip where the event says so; return the gradients as they were unscaled, if finite."""
    if event not in ("u", "c", "clip"):
        return None
    call("unscale_", training.optimizer)
    unscaled = training.gradients()
    if event != "u":
        training.clip()
    return unscaled if event not in OVERFLOWS else None


def _joined(*tensors: Tensor) -> Tensor:
    return torch.cat([t.detach().reshape(-1).cpu() for t in tensors]).clone()


def _joined_gradient(*parameters: torch.nn.Parameter) -> Tensor:
    return _joined(*(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters))
