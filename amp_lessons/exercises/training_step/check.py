"""Is a step made of tensors alone that of plain SGD, and does an overflow move nothing?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import float_in
from amp_lessons.text.describing import describe

_WITHIN = 0.02


def check(attempt: Attempt) -> Iterator[Finding]:
    """Let the step be made on problems of several kinds, each with its true gradient."""
    step = attempt.function([], None, None, 0.1, 1.0)
    for problem in (_PLAIN, _TINY, _SMALL_STEPS):
        _require_step(step, problem)
    for problem in _OVERFLOWS:
        _require_nothing(step, problem)
    yield passed("copies_in_fp16", "the loss was computed once, with copies of the weights in fp16")
    yield passed("masters_moved", "the masters moved by the true gradient, also by less than fp16 can hold")
    yield passed(
        "overflow_left_out", "where a gradient was inf or NaN nothing moved, and the scale was halved"
    )


@dataclass(frozen=True)
class Problem:
    """One call: the loss is multiplied by ``loss_weight``; the weight ``broken`` gets a ``bad`` gradient."""

    what: str
    lr: float
    scale: float
    loss_weight: float = 1.0
    broken: int | None = None
    bad: float = math.inf


_PLAIN = Problem("a plain step", lr=0.5, scale=1024.0)
_TINY = Problem("gradients below 2**-25", lr=2.0**28, scale=2.0**28, loss_weight=2.0**-30)
_SMALL_STEPS = Problem("an update of a ten-thousandth", lr=1e-4, scale=1024.0)
_OVERFLOWS = (
    Problem("a scale at which all gradients are inf", lr=0.5, scale=2.0**40),
    Problem("inf in the gradient of the first weight alone", lr=0.5, scale=1024.0, broken=0),
    Problem("-inf in the gradient of the last weight alone", lr=0.5, scale=1024.0, broken=2, bad=-math.inf),
    Problem("NaN in the gradient of the second weight alone", lr=0.5, scale=1024.0, broken=1, bad=math.nan),
)


class _Spoilt(torch.autograd.Function):
    """The identity, whose gradient has one number that is not finite."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bad: float) -> Tensor:
        ctx.bad = bad
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        spoilt = gradients[0].clone()
        spoilt.view(-1)[0] = ctx.bad
        return spoilt, None


@dataclass
class Loss:
    """A loss function that notes with what it was called: two layers and an elementwise gain."""

    problem: Problem
    given: list[tuple[torch.dtype, ...]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def __call__(self, weights: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
        """Return the loss in fp32; the layers run in the dtype of the weights."""
        self.given.append(tuple(weight.dtype for weight in weights))
        used = list(weights)
        if self.problem.broken is not None:
            used[self.problem.broken] = _Spoilt.apply(used[self.problem.broken], self.problem.bad)
        first, gain, second = used
        inputs, targets = batch
        hidden = torch.tanh(inputs.to(first.dtype) @ first) * gain
        loss = (hidden @ second - targets.to(first.dtype)).float().square().mean() * self.problem.loss_weight
        self.values.append(float(loss.detach()))
        return loss


def _drawn() -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
    draw = torch.Generator().manual_seed(0)
    weights = [torch.randn(shape, generator=draw) * 0.5 for shape in ((6, 8), (8,), (8, 3))]
    return weights, (torch.randn(16, 6, generator=draw), torch.randn(16, 3, generator=draw))


def _made(step: LearnersFunction, problem: Problem) -> tuple[list[Tensor], list[Tensor], float, float, Loss]:
    """Make a step; return the weights before and after, the loss and scale returned, and what was seen."""
    weights, batch = _drawn()
    before, handed, loss_fn = [weight.clone() for weight in weights], list(weights), Loss(problem)
    returned = step(handed, loss_fn, batch, problem.lr, problem.scale, about=f"for {problem.what}")
    numbers = [float_in(each) for each in returned] if isinstance(returned, tuple | list) else []
    if len(numbers) != 2 or None in numbers:
        expected = "two floats were"
        raise Rejected(
            common_findings.wrong_return_type(expected, describe(returned), "return loss.item(), scale")
        )
    _require_calls(loss_fn)
    if any(one is not other for one, other in zip(handed, weights, strict=False)) or len(handed) != 3:
        reject(
            "masters_replaced",
            "the list holds other tensors after the step: whoever else has the weights keeps the old ones",
            "change each weight in place: weight -= lr * gradient",
        )
    if any(weight.dtype != torch.float32 for weight in weights):
        reject("masters_replaced", "a weight is no longer in fp32", "only the copies are in fp16")
    return before, [weight.detach() for weight in weights], numbers[0] or 0.0, numbers[1] or 0.0, loss_fn


def _require_calls(loss_fn: Loss) -> None:
    if len(loss_fn.given) != 1:
        reject(
            "loss_calls", f"loss_fn was called {len(loss_fn.given)} times", "call it once, with all copies"
        )
    if set(loss_fn.given[0]) != {torch.float16}:
        seen = ", ".join(sorted({str(dtype) for dtype in loss_fn.given[0]}))
        reject("not_in_fp16", f"loss_fn was given weights in {seen}", "give it weight.half() of each")


def _true_step(problem: Problem) -> list[Tensor]:
    weights, batch = _drawn()
    leaves = [weight.double().requires_grad_() for weight in weights]
    inputs, targets = (each.double() for each in batch)
    hidden = torch.tanh(inputs @ leaves[0]) * leaves[1]
    loss = (hidden @ leaves[2] - targets).square().mean() * problem.loss_weight
    return [-problem.lr * gradient for gradient in torch.autograd.grad(loss, leaves)]


def _length(tensors: list[Tensor]) -> float:
    return float(torch.cat([each.double().reshape(-1) for each in tensors]).norm())


def _require_step(step: LearnersFunction, problem: Problem) -> None:
    before, after, loss, scale, loss_fn = _made(step, problem)
    moved, right = [a.double() - b.double() for a, b in zip(after, before, strict=True)], _true_step(problem)
    off = _length([a - b for a, b in zip(moved, right, strict=True)]) / _length(right)
    if not off <= _WITHIN:
        _reject_step(moved, right, problem, off)
    if not math.isclose(loss, loss_fn.values[0], rel_tol=1e-4):
        reject(
            "loss_scaled",
            f"the loss returned is {loss:.6g}, and loss_fn gave {loss_fn.values[0]:.6g}",
            "the scale goes into backward, not into what is returned",
        )
    if scale != problem.scale:
        reject(
            "scale_moved",
            f"the scale returned is {scale:g}, it was {problem.scale:g}, and all gradients were finite",
            "without an overflow return the scale as it is",
        )


def _reject_step(moved: list[Tensor], right: list[Tensor], problem: Problem, off: float) -> None:
    length = _length(moved) / _length(right)
    said = f"for {problem.what} the weights moved {length:.3g} times as far as the gradient takes them"
    if problem is _TINY and length < 0.5:
        reject(
            "gradients_vanished",
            f"{said}: gradients became zero in fp16",
            "multiply the loss by the scale before backward, and divide the gradients in fp32",
        )
    if math.isclose(length, problem.scale, rel_tol=0.1):
        reject(
            "not_divided_by_scale", f"{said}: the scale is still in them", "divide the gradients by the scale"
        )
    if problem is _SMALL_STEPS:
        reject(
            "masters_rounded",
            f"{said}, {off:.0%} off: what is below the last bit of fp16 was lost",
            "subtract from the weight in fp32; its copy in fp16 is for loss_fn alone",
        )
    reject(
        "step_elsewhere",
        f"{said}, {off:.0%} off",
        "weight -= lr * gradient, with the gradient of the loss not scaled",
    )


def _require_nothing(step: LearnersFunction, problem: Problem) -> None:
    before, after, _, scale, _ = _made(step, problem)
    changed = [i for i, (a, b) in enumerate(zip(after, before, strict=True)) if not torch.equal(a, b)]
    if changed:
        reject(
            "overflow_applied",
            f"with {problem.what} the weights {', '.join(str(i + 1) for i in changed)} of 3 moved",
            "look at all gradients first, for inf, -inf and NaN (isfinite finds them); then move all or none",
        )
    if scale != problem.scale / 2:
        reject(
            "scale_not_halved",
            f"with {problem.what} the scale returned is {scale:g}; half of {problem.scale:g} is right",
            "after an overflow return scale / 2",
        )
