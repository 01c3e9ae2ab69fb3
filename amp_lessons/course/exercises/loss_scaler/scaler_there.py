"""Clean iterations and overflows in a worker, one after another, and what a scaler does in each of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.serving import told
from amp_lessons.course.exercises import bed_there

OVERFLOWS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "last": math.inf, "clip": math.inf}
"""What an iteration with an overflow puts into a gradient, by its kind."""

LARGE = 2e38  # a sum of two, and the square of one, is inf in fp32


METHODS = ("scale", "unscale_", "step", "update", "get_scale")


class NoGraphError(Exception):
    """What scale() returned is nothing that backward can start from."""


class NoMethodError(Exception):
    """The scaler has something else than methods under the names ``instead``, or nothing (None)."""

    def __init__(self, instead: dict[str, Any]) -> None:
        super().__init__(instead)
        self.instead = instead


class _Training:
    """Three parameters in two groups of one optimizer, whose steps are counted."""

    def __init__(self) -> None:
        self.first = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        self.second = torch.nn.Parameter(torch.tensor([[0.5]]))
        self.unused = torch.nn.Parameter(torch.zeros(2))
        groups = [{"params": [self.first, self.unused]}, {"params": [self.second]}]
        self.optimizer = torch.optim.SGD(groups, lr=1.0)
        self.steps = 0
        self.optimizer.register_step_pre_hook(self._count)

    def _count(self, *_: Any) -> None:
        # without any gradient a step does nothing, whatever the optimizer
        self.steps += any(p.grad is not None for p in (self.first, self.second, self.unused))

    def loss(self, factors: Tensor) -> Tensor:
        return (self.first * factors).sum() + self.second.sum() * 0.125

    def spoil(self, event: str) -> None:
        parameter = self.second if event == "last" else self.first
        if event in OVERFLOWS and parameter.grad is not None:
            parameter.grad.view(-1)[0] = OVERFLOWS[event]
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


def no_class(value: Any) -> str:
    """Describe a value that is no class; return "" for a class."""
    return "" if inspect.isclass(value) else describe(value)


def iterations(
    made: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    events: list[str],
    beside: dict[str, Any] | None,
) -> dict[str, Any]:
    """Make a scaler and take it through iterations; return what ``bed_there.call`` does.

    The result has the ``iterations`` as ``step_through`` returns them, and what went wrong, if anything did:
    ``raised``, where (``doing``, ``iteration``), by which kind of wrong ("no_graph", "no_method") it was.
    ``beside`` are the settings of a second scaler that is in use in each of them, for an overflow of its own.
    """
    borrowed: list[str] = []
    of_pytorchs = torch.amp.GradScaler.__init__

    def noticed(self: Any, *args: Any, **kwargs: Any) -> None:
        borrowed.append(type(self).__name__)
        of_pytorchs(self, *args, **kwargs)

    torch.amp.GradScaler.__init__ = noticed  # type: ignore[method-assign]

    def another() -> None:
        if beside is not None:
            step_through(lambda: made(**beside), ["inf"], [])

    def stepping() -> dict[str, Any]:
        progress: list[str] = []
        seen: dict[str, Any] = {"iterations": [], "raised": None, "kind": "", "words": {}}
        try:
            seen["iterations"] = step_through(lambda: made(*args, **kwargs), events, progress, another)
        except NoMethodError as error:
            words = {name: "" if value is None else describe(value) for name, value in error.instead.items()}
            seen.update(kind="no_method", words=words)
        except NoGraphError as error:
            seen.update(kind="no_graph", words={"scale": str(error)})
        except Exception as error:
            seen["raised"] = told(error)
        return {**seen, "doing": progress[-1:], "iteration": progress.count("update") + 1}

    called = bed_there.call(stepping, [], {})
    return {**called, "args": args, "noticed": bool(borrowed)}


def step_through(
    make: Callable[[], Any],
    events: Sequence[str],
    progress: list[str],
    meanwhile: Callable[[], Any] = lambda: None,
) -> list[dict[str, Any]]:
    """Take a scaler through the iterations of a scenario. ``progress`` says at any time what is being done.

    ``meanwhile`` is called in each of them, before ``step``. Of each iteration are returned: ``loss``, what
    ``scale`` was given, and ``loss_after``, what the caller's tensor holds when it has returned;
    ``scaled_loss``; gradients and ``moved``, by which the weights became smaller, flat tensors of three
    numbers: ``unscaled`` is what ``unscale_`` left, where it was called and no gradient overflowed, ``left``
    what ``step`` left; ``replaced``, whether after ``step`` other tensors stood in ``.grad`` than
    ``backward`` had put there; the scales before all, before ``update`` (``scale_after_step``) and after it,
    as copies, and ``scale_kept``, what ``get_scale`` returned for the first of them, as it is at the end;
    ``steps``, how often the optimizer stepped; ``true_gradient``, what the loss's is without a scale.
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


def scales(scaler: Any, events: list[str]) -> list[Any]:
    """Return the scale after each iteration of a scaler that goes on."""
    return [each["scale_after"] for each in step_through(lambda: scaler, events, [])]


def _require_methods(scaler: Any) -> None:
    """Look before every call: an attribute that hides a method may be set at any time, and called within."""
    found = {name: getattr(scaler, name, None) for name in METHODS}
    instead = {name: value for name, value in found.items() if not callable(value)}
    if instead:
        raise NoMethodError(instead)


_CallMethod = Callable[..., Any]  # of the scaler, by its name


def _iteration(
    call: _CallMethod, training: _Training, event: str, count: int, meanwhile: Callable[[], Any]
) -> dict[str, Any]:
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
    return {
        "loss": loss_before,
        "loss_after": loss_after,
        "scaled_loss": float(scaled.detach()),
        "unscaled": unscaled,
        "moved": moved,
        "left": left,
        "true_gradient": torch.cat([factors, torch.tensor([0.125])]),
        "replaced": replaced,
        "scale_before": scale_before,
        "scale_kept": _copied(scale_kept),
        "scale_after_step": scale_after_step,
        "scale_after": scale_after,
        "steps": steps,
    }


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
    return torch.cat([t.detach().reshape(-1) for t in tensors]).clone()


def _joined_gradient(*parameters: torch.nn.Parameter) -> Tensor:
    return _joined(*(torch.zeros_like(p) if p.grad is None else p.grad for p in parameters))
