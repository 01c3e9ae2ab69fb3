"""A training with a loss scaler, clean iterations and overflows one after another, and what is seen there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NoReturn
from unittest import mock

import torch
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there

OVERFLOWS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, "last": math.inf, "clip": math.inf}
"""What an iteration with an overflow puts into a gradient, by its kind."""

LARGE = 2e38  # a sum of two, and the square of one, is inf in fp32
_NOTHING = torch.empty(0)


@dataclass
class Iteration:
    """What is seen in one iteration; gradients and movements are flat tensors of three numbers."""

    event: str
    scale_before: float = 0.0
    scaled_loss: float = 0.0
    loss: float = 0.0  # what the caller's tensor holds when scale has returned
    unscaled: Tensor | None = None  # what unscale_ left, where it was called and no gradient overflowed
    moved: Tensor = _NOTHING  # by how much the weights became smaller
    steps: int = 0  # of the optimizer
    left: Tensor = _NOTHING  # the gradients after step
    scale_after: float = 0.0
    returned: Any = None  # as which get_scale returned it
    scale_kept: float = 0.0  # what get_scale returned for scale_before, as it is at the end


class _StoppedError(Exception):
    """No iteration goes on like this: a method is missing, or has not returned what it should."""


class Run:
    """A scaler beside three parameters in two groups of one optimizer, whose steps are counted."""

    def __init__(self, make: Callable[[], Any], another: Callable[[], Any] | None = None) -> None:
        """Make nothing yet; ``another`` makes a second scaler that is in use in each iteration."""
        self.make, self.another = make, another
        self.first, self.second, unused = (torch.nn.Parameter(torch.zeros(n)) for n in (2, 1, 2))
        groups = [{"params": [self.first, unused]}, {"params": [self.second]}]
        self.optimizer = torch.optim.SGD(groups, lr=1.0)
        self.optimizer.register_step_pre_hook(self._count)
        self.steps = 0
        self.doing, self.count = "", 1  # the method that was called last, and in which iteration
        self.stopped: tuple[str, str] | None = None  # a code, and what was seen

    def through(self, events: Sequence[str]) -> list[Iteration]:
        """Make the scaler and take it through the iterations of a scenario."""
        self.scaler, seen = self.make(), list(map(Iteration, events))
        for self.count, each in enumerate(seen, 1):
            self._iterate(each)
        return seen

    def _iterate(self, seen: Iteration) -> None:
        self.optimizer.zero_grad()
        weights, steps = torch.tensor([1.0, -2.0, 0.5]), self.steps
        self.first.data, self.second.data = weights[:2].clone(), weights[2:].clone()
        loss = (self.first * torch.tensor([0.25, -0.5]) * self.count).sum() + self.second.sum() * 0.125
        kept = self._call("get_scale")
        seen.scale_before = self._number(kept)
        scaled = self._call("scale", loss)
        seen.loss = loss.item()
        if isinstance(scaled, Tensor) and scaled.grad_fn is not None:
            scaled.backward()
        tensors = self._tensors()
        if not tensors:
            self._stop(
                "scale", f"scale(loss) is {describe(scaled)}: its backward() cannot reach the parameters"
            )
        seen.scaled_loss = scaled.item()
        if seen.event in OVERFLOWS:
            tensors[seen.event == "last"][0] = OVERFLOWS[seen.event]
        if seen.event == "large":
            tensors[0].fill_(LARGE)
        if seen.event in ("u", "c", "clip"):
            self._call("unscale_", self.optimizer)
            seen.unscaled = None if seen.event == "clip" else self._gradients()
        if seen.event in ("c", "clip"):
            for gradient in self._tensors():
                gradient.clamp_(-1.0, 1.0)
        if self.another is not None:
            Run(self.another).through(["inf"])
        self._call("step", self.optimizer)
        seen.moved = weights - torch.cat([self.first.detach(), self.second.detach()])
        seen.steps = self.steps - steps
        seen.left = self._gradients()
        self._call("update")
        seen.returned = self._call("get_scale")
        seen.scale_after, seen.scale_kept = self._number(seen.returned), self._number(kept)

    def _count(self, *_: Any) -> None:
        self.steps += bool(self._tensors())  # without any gradient a step does nothing

    def _tensors(self) -> list[Tensor]:
        return [p.grad for p in (self.first, self.second) if p.grad is not None]

    def _gradients(self) -> Tensor:
        return torch.cat(
            [torch.zeros_like(p) if p.grad is None else p.grad for p in (self.first, self.second)]
        )

    def _call(self, method: str, *args: Any) -> Any:
        found = getattr(self.scaler, method, None)
        if not callable(found):
            self._stop("method_missing", f"scaler.{method} is no method")
        self.doing = method
        return found(*args)

    def _number(self, scale: Any) -> float:
        number = scale.item() if isinstance(scale, Tensor) and scale.numel() == 1 else scale
        if not isinstance(number, Real) or isinstance(number, bool):
            self._stop("get_scale", f"get_scale() returned {describe(scale)}, not a float")
        return float(number)

    def _stop(self, code: str, message: str) -> NoReturn:
        self.stopped = code, message
        raise _StoppedError


def iterations(
    made: Callable[..., Any],
    args: list[Any],
    kwargs: dict[str, Any],
    events: list[str],
    beside: dict[str, Any],
) -> dict[str, Any]:
    """Make a scaler and take it through iterations; return what ``bed_there.call`` does.

    The result has the ``iterations``, or what ended them: ``raised``, or ``stopped``. ``beside`` are the
    settings of a second scaler that is in use in each of them; {} is for none.
    """
    run = Run(lambda: made(**kwargs), (lambda: made(**beside)) if beside else None)

    def told() -> dict[str, Any]:
        seen, raised = bed_there.attempted(run.through, events)
        entries, doing = [vars(each) for each in seen or []], [run.doing, run.count]
        return {"iterations": entries, "raised": raised, "stopped": run.stopped, "doing": doing}

    theirs = torch.amp.GradScaler
    with mock.patch.object(theirs, "__init__", autospec=True, side_effect=theirs.__init__) as borrowed:
        called = bed_there.call(told, [], {})
    if borrowed.called:
        called["result"]["stopped"] = "uses_grad_scaler", "the class leaves its work to torch.amp.GradScaler"
    return {**called, "args": args}


def scales(scaler: Any, events: list[str]) -> list[float]:
    """Return the scale after each iteration of a scaler that goes on."""
    return [each.scale_after for each in Run(lambda: scaler).through(events)]
