"""Watch what a training loop really does: a tape of events, and the class-level patches that write it.

Methods are replaced on the classes, so that every spelling of ``GradScaler`` and ``autocast`` is seen,
subclasses and names imported earlier included. Where there is no GPU, "cuda" means the device there is:
PyTorch would otherwise switch autocast and the scaler off without an error, and every mistake would pass.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

CallName = Literal[
    "GradScaler",
    "scale",
    "unscale_",
    "unscaled",
    "scaler.step",
    "update",
    "updated",
    "zero_grad",
    "optimizer.step",
    "stepped",
]


@dataclass(frozen=True)
class Forward:
    """One forward pass of a watched model: in which dtype it ran, and on which weights."""

    part: str
    inputs: Tensor
    autocast_dtype: torch.dtype | None
    parameter_dtype: torch.dtype
    stale: bool
    training: bool
    own_model: bool
    graph: bool = True


@dataclass(frozen=True)
class Loss:
    """One call of the loss function that a backward pass can start from."""

    value: float
    dtype: torch.dtype
    autocast: bool
    weights: Tensor


@dataclass
class Backward:
    """One backward pass through a loss: the gradient it started with, and what it left in ``.grad``.

    ``seed`` is the derivative of what the learner called ``backward`` on by the loss: the loss scale, if all
    is well. ``leftover`` holds the indices of the parameters whose gradients were not zero before it.
    """

    seed: float
    autocast: bool
    leftover: frozenset[int]
    gradients: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One call of a method of a scaler or an optimizer, with the gradients that it found.

    ``owner`` tells objects apart; ``scale`` is a scaler's scale at that moment, 1 when it is disabled or for
    an optimizer; ``in_step`` says that ``scaler.step`` made this call. ``dtype`` and ``elements`` describe
    the tensor that ``scale`` was given; ``arguments`` counts what ``scaler.step`` got beside the optimizer.
    """

    name: CallName
    owner: int
    scale: float = 1.0
    enabled: bool = True
    in_step: bool = False
    autocast: bool = False
    dtype: torch.dtype | None = None
    elements: int = 1
    arguments: int = 0
    optimizer: int = 0
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
        """Copy all watched parameters into one flat float32 tensor on the CPU."""
        return torch.cat([p.detach().reshape(-1).float().cpu() for p in self.parameters])

    def gradients(self) -> Tensor:
        """Copy all watched gradients into one flat float32 tensor on the CPU, zeros where there are none."""
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
        self.add(lambda: Loss(float(loss.detach()), loss.dtype, self.autocast_on(), self.weights()))
        loss.register_hook(self._backward_began)

    def _backward_began(self, seed: Tensor) -> None:
        def observe() -> Backward:
            leftover = {
                i for i, p in enumerate(self.parameters) if p.grad is not None and bool((p.grad != 0).any())
            }
            return Backward(float(seed.sum()), self.autocast_on(), frozenset(leftover))

        self.add(observe)

    def gradient_accumulated(self, index: int, parameter: Tensor) -> None:
        """Keep a copy of a gradient as the backward pass under way left it."""
        last = next((event for event in reversed(self.events) if isinstance(event, Backward)), None)
        if last is not None and parameter.grad is not None:
            last.gradients[index] = parameter.grad.detach().clone()


def flat(parameters: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> Tensor:
    """Join gradients into one flat float32 tensor on the CPU, zeros where a parameter has none."""
    parts = [
        torch.zeros(p.numel()) if g is None else g.detach().to_dense().reshape(-1).float().cpu()
        for p, g in zip(parameters, gradients, strict=True)
    ]
    return torch.cat(parts)


@contextlib.contextmanager
def spying(tape: Tape) -> Iterator[Tape]:
    """Write everything that happens inside to ``tape``."""
    with ExitStack() as stack:
        # compiled code would not come by the spies, and compiling takes longer than the whole check
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        for owner, name, wrap in _patches(tape):
            stack.enter_context(replaced(owner, name, wrap))
        for index, parameter in enumerate(tape.parameters):
            stack.callback(_watch_gradient(tape, index, parameter).remove)
        before = register_optimizer_step_pre_hook(lambda o, args, kwargs: tape.call("optimizer.step", o))
        stack.callback(before.remove)
        after = register_optimizer_step_post_hook(lambda o, args, kwargs: tape.call("stepped", o))
        stack.callback(after.remove)
        yield tape


def _watch_gradient(tape: Tape, index: int, parameter: nn.Parameter) -> Any:
    return parameter.register_post_accumulate_grad_hook(lambda p: tape.gradient_accumulated(index, p))


@contextlib.contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace ``owner.name`` by what ``wrap`` makes of it, and undo exactly that afterwards."""
    own = vars(owner).get(name)
    try:
        original = getattr(owner, name)
        # a learner who calls it with wrong arguments is told its name, not the spy's
        setattr(owner, name, functools.update_wrapper(wrap(original), original))
        yield
    finally:
        if own is not None:
            setattr(owner, name, own)
        elif name in vars(owner):
            delattr(owner, name)


def _patches(tape: Tape) -> list[tuple[Any, str, Callable[[Any], Any]]]:
    scaler = torch.amp.GradScaler
    patches: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (scaler, "__init__", lambda original: _made_scaler(tape, original)),
        (scaler, "scale", lambda original: _scaled(tape, original)),
        (scaler, "unscale_", lambda original: _unscaled(tape, original)),
        (scaler, "step", lambda original: _stepped(tape, original)),
        (scaler, "update", lambda original: _updated(tape, original)),
        (torch.amp.autocast_mode.autocast, "__init__", lambda original: _made_autocast(tape, original)),
        (torch.optim.Optimizer, "zero_grad", lambda original: _zeroed(tape, original)),
        (nn.Module, "zero_grad", lambda original: _zeroed(tape, original)),
        (torch._C._nn, "binary_cross_entropy", lambda original: _banned_under_autocast(tape, original)),
    ]
    if tape.device_type != "cuda":
        patches += [(owner, "to", lambda original: _moved(tape, original)) for owner in (Tensor, nn.Module)]
        patches += [(owner, "cuda", lambda original: _moved_to_cuda(tape)) for owner in (Tensor, nn.Module)]
    return patches


def _note(tape: Tape, name: CallName, scaler: torch.amp.GradScaler, **seen: Any) -> None:
    tape.call(name, scaler, scale=_scale_of(scaler), enabled=scaler.is_enabled(), **seen)


def _scale_of(scaler: torch.amp.GradScaler) -> float:
    with contextlib.suppress(Exception):
        return scaler.get_scale()
    return math.nan


def _is_cuda(device: Any) -> bool:
    return (isinstance(device, str) and device.startswith("cuda")) or (
        isinstance(device, torch.device) and device.type == "cuda"
    )


def _own_device(tape: Tape, device: Any, spelling: str) -> Any:
    """Return the device to use where the learner asked for ``device``."""
    if tape.device_type != "cuda" and _is_cuda(device):
        tape.hard_coded.add(spelling)
        return tape.device_type
    return device


def _made_scaler(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:  # noqa: N807
        old_spelling = type(self).__module__.startswith(("torch.cuda.", "torch.cpu."))
        if old_spelling:
            tape.deprecated.add(f"{type(self).__module__.rsplit('.', 1)[0]}.GradScaler")
        original(self, _own_device(tape, device, "GradScaler"), *args, **kwargs)
        _note(tape, "GradScaler", self)

    return __init__


def _scaled(tape: Tape, original: Any) -> Any:
    def scale(self: Any, outputs: Any) -> Any:
        seen = {"dtype": outputs.dtype, "elements": outputs.numel()} if isinstance(outputs, Tensor) else {}
        _note(tape, "scale", self, **seen)
        return original(self, outputs)

    return scale


def _unscaled(tape: Tape, original: Any) -> Any:
    def unscale_(self: Any, optimizer: Any) -> None:
        _note(tape, "unscale_", self)
        original(self, optimizer)
        _note(tape, "unscaled", self)

    return unscale_


def _stepped(tape: Tape, original: Any) -> Any:
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        _note(tape, "scaler.step", self, optimizer=id(optimizer), arguments=len(args) + len(kwargs))
        with tape.stepping():
            return original(self, optimizer, *args, **kwargs)

    return step


def _updated(tape: Tape, original: Any) -> Any:
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        _note(tape, "update", self)
        original(self, *args, **kwargs)
        _note(tape, "updated", self)

    return update


def _made_autocast(tape: Tape, original: Any) -> Any:
    def __init__(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        if type(self).__module__.startswith(("torch.cuda.", "torch.cpu.")):
            tape.deprecated.add(f"{type(self).__module__.rsplit('.', 1)[0]}.autocast")
        own_device = _own_device(tape, device_type, "autocast")
        if own_device != device_type and not args and kwargs.get("dtype") is None:
            kwargs["dtype"] = torch.get_autocast_dtype(
                "cuda"
            )  # the default belongs to the device that was asked for
        original(self, own_device, *args, **kwargs)

    return __init__


def _zeroed(tape: Tape, original: Any) -> Any:
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        tape.call("zero_grad", self)
        original(self, *args, **kwargs)

    return zero_grad


def _moved(tape: Tape, original: Any) -> Any:
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(_own_device(tape, argument, "to") for argument in args)
        kwargs = {name: _own_device(tape, argument, "to") for name, argument in kwargs.items()}
        return original(self, *args, **kwargs)

    return to


def _moved_to_cuda(tape: Tape) -> Any:
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        tape.hard_coded.add("cuda")
        return self

    return cuda


def _banned_under_autocast(tape: Tape, original: Any) -> Any:
    """Refuse on the CPU what CUDA's autocast refuses, so that both give the same verdict."""

    def binary_cross_entropy(*args: Any, **kwargs: Any) -> Tensor:
        if tape.autocast_on():
            raise RuntimeError(
                "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
            )
        return original(*args, **kwargs)

    return binary_cross_entropy
