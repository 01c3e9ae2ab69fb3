"""Is a step made of tensors alone that of plain SGD, and does an overflow move nothing?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons._base.worker.plain import Handle
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.common_findings import float_in
from amp_lessons.course.exercises.training_step import step_there

_WITHIN = 0.02


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step be made on problems of several kinds, each with its true gradient."""
    bed.function(worker, "training_step", *[None] * 5)
    data = _drawn(draw)
    for problem in (_PLAIN, _TINY, _SMALL_STEPS, _SMALL_WEIGHTS):
        _require_step(_made(worker, problem, data), problem, data)
    for problem in _OVERFLOWS:
        _require_nothing(_made(worker, problem, data), problem, data)
    yield passed("copies_in_fp16", "the loss was computed once, with copies of the weights in fp16")
    yield passed("masters_moved", "the masters moved by the true gradient, also by less than fp16 can hold")
    yield passed(
        "overflow_left_out", "where a gradient was inf or NaN nothing moved, and the scale was halved"
    )


@dataclass(frozen=True)
class Problem:
    """One call: the loss is multiplied by ``loss_weight``; the weight ``broken`` gets a ``bad`` gradient.

    ``size`` multiplies the weights that it begins with.
    """

    what: str
    lr: float
    scale: float
    loss_weight: float = 1.0
    size: float = 1.0
    broken: int | None = None
    bad: float = math.inf


_PLAIN = Problem("a plain step", lr=0.5, scale=1024.0)
_TINY = Problem("gradients below 2**-25", lr=2.0**28, scale=2.0**28, loss_weight=2.0**-30)
_SMALL_STEPS = Problem("an update of a ten-thousandth", lr=1e-4, scale=1024.0)
_SMALL_WEIGHTS = Problem("updates below 2**-24 of small weights", lr=0.05, scale=2.0**16, size=2.0**-8)
_OVERFLOWS = (
    Problem("inf in the gradient of the first weight alone", lr=0.5, scale=1024.0, broken=0),
    Problem("-inf in the gradient of the last weight alone", lr=0.5, scale=1024.0, broken=2, bad=-math.inf),
    Problem("NaN in the gradient of the second weight alone", lr=0.5, scale=1024.0, broken=1, bad=math.nan),
    Problem("a scale at which no gradient is finite", lr=0.5, scale=2.0**40),
)


@dataclass(frozen=True)
class _Data:
    """Weights at the beginning, and a batch of inputs and targets."""

    weights: list[Tensor]
    batch: tuple[Tensor, Tensor]

    def times(self, size: float) -> list[Tensor]:
        """Return the weights multiplied by ``size``."""
        return [weight * size for weight in self.weights]


def _drawn(draw: torch.Generator) -> _Data:
    weights = [torch.randn(shape, generator=draw) * 0.5 for shape in ((6, 8), (8,), (8, 3))]
    return _Data(weights, (torch.randn(16, 6, generator=draw), torch.randn(16, 3, generator=draw)))


@dataclass(frozen=True)
class _Made:
    """What a step did: the weights after it, and the loss and scale that it returned."""

    after: list[Tensor]
    loss: float
    scale: float


def _made(worker: Worker, problem: Problem, data: _Data) -> _Made:
    """Let a step be made; reject one that asks for the loss otherwise, or returns other things."""
    options = problem.lr, problem.scale, problem.loss_weight, problem.broken, problem.bad
    made = f"{step_there.__name__}:make", Handle(0), data.times(problem.size), data.batch
    told = bed.asked(worker, *made, *options, about=f"for {problem.what}")
    returned = told["returned"]
    numbers = [float_in(each) for each in returned] if isinstance(returned, tuple | list) else []
    if len(numbers) != 2 or None in numbers:
        expected, said = "two floats were", bed.described(returned)
        raise Rejected(common_findings.wrong_return_type(expected, said, "return loss.item(), scale"))
    _require_calls(told["given"])
    if not told["kept"]:
        reject(
            "masters_replaced",
            "the list holds other tensors after the step: whoever else has the weights keeps the old ones",
            "change each weight in place: weight -= lr * gradient",
        )
    if any(weight.dtype != torch.float32 for weight in told["after"]):
        reject("masters_replaced", "a weight is no longer in fp32", "only the copies are in fp16")
    return _Made(told["after"], numbers[0] or 0.0, numbers[1] or 0.0)


def _require_calls(given: list[list[torch.dtype]]) -> None:
    if len(given) != 1:
        reject("loss_calls", f"loss_fn was called {len(given)} times", "call it once, with all copies")
    if set(given[0]) != {torch.float16}:
        seen = ", ".join(sorted({str(dtype) for dtype in given[0]}))
        reject("not_in_fp16", f"loss_fn was given weights in {seen}", "give it weight.half() of each")


def _true_step(problem: Problem, data: _Data) -> tuple[float, list[Tensor]]:
    """Return the loss, and by how much each weight should move."""
    leaves = [weight.double().requires_grad_() for weight in data.times(problem.size)]
    inputs, targets = (each.double() for each in data.batch)
    hidden = torch.tanh(inputs @ leaves[0]) * leaves[1]
    loss = (hidden @ leaves[2] - targets).square().mean() * problem.loss_weight
    return float(loss.detach()), [-problem.lr * each for each in torch.autograd.grad(loss, leaves)]


def _length(tensors: list[Tensor]) -> float:
    return float(torch.cat([each.double().reshape(-1) for each in tensors]).norm())


def _require_step(made: _Made, problem: Problem, data: _Data) -> None:
    loss, right = _true_step(problem, data)
    moved = [a.double() - b.double() for a, b in zip(made.after, data.times(problem.size), strict=True)]
    off = _length([a - b for a, b in zip(moved, right, strict=True)]) / _length(right)
    if not off <= _WITHIN:
        _reject_step(moved, right, problem, off)
    if not math.isclose(made.loss, loss, rel_tol=_WITHIN):
        reject(
            "loss_scaled",
            f"the loss returned is {made.loss:.6g}, and loss_fn gave {loss:.6g}",
            "the scale goes into backward, not into what is returned",
        )
    if made.scale != problem.scale:
        reject(
            "scale_moved",
            f"the scale returned is {made.scale:g}, it was {problem.scale:g}, and all gradients were finite",
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
    if problem is _SMALL_WEIGHTS:
        reject(
            "update_rounded",
            f"{said}, {off:.0%} off: an update so small is no number of fp16",
            "multiply gradient and learning rate in fp32",
        )
    reject(
        "step_elsewhere",
        f"{said}, {off:.0%} off",
        "weight -= lr * gradient, with the gradient of the loss not scaled",
    )


def _require_nothing(made: _Made, problem: Problem, data: _Data) -> None:
    pairs = zip(made.after, data.times(problem.size), strict=True)
    changed = [str(place) for place, (a, b) in enumerate(pairs, start=1) if not torch.equal(a, b)]
    if changed:
        reject(
            "overflow_applied",
            f"with {problem.what} the weights {', '.join(changed)} of 3 moved",
            "look at all gradients first, for inf, -inf and NaN (isfinite finds them); then move all or none",
        )
    if made.scale != problem.scale / 2:
        reject(
            "scale_not_halved",
            f"with {problem.what} the scale returned is {made.scale:g}; half of {problem.scale:g} is right",
            "after an overflow return scale / 2",
        )
