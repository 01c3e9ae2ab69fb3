"""Is a step made of tensors alone that of plain SGD, and does an overflow move nothing?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import float_in
from amp_lessons.course.exercises.training_step import step_there

_WITHIN = 0.02
_Made = tuple[list[Tensor], float, float]  # the weights after a step, and the loss and scale it returned


class Case(NamedTuple):
    """One step; ``size`` multiplies the weights before it; the weight ``broken`` gets a ``bad`` gradient."""

    what: str
    size: float = 1.0
    lr: float = 0.5
    scale: float = 1024.0
    loss_weight: float = 1.0
    broken: int | None = None
    bad: float = math.inf


_STEPS = (
    Case("a plain step"),
    Case("gradients below 2**-25", lr=2.0**28, scale=2.0**28, loss_weight=2.0**-30),
    Case("a learning rate of a ten-thousandth", lr=1e-4),
    Case("updates around 2**-24 of small weights", lr=0.05, scale=2.0**16, size=2.0**-8),
)
_FITS = Case("gradients that fit fp16, with a norm that does not")
_OVERFLOWS = (
    Case("inf in the gradient of the first weight alone", broken=0),
    Case("-inf in the gradient of the last weight alone", broken=2, bad=-math.inf),
    Case("NaN in the gradient of the second weight alone", broken=1, bad=math.nan),
    Case("a scale at which no gradient is finite", scale=2.0**40),
)


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Let the step be made on problems of several kinds, each with its true gradient."""
    bed.function(worker, "training_step", *[None] * 5)
    drawn = [torch.randn(shape, generator=draw) * 0.5 for shape in ((6, 8), (8,), (8, 3))]
    batch = torch.randn(16, 6, generator=draw), torch.randn(16, 3, generator=draw)
    fits = _FITS._replace(scale=0.9 * _largest_scale(drawn, batch) // 1)  # whole: exact in fp32, too
    for case in (*_STEPS, fits, *_OVERFLOWS):
        weights = [weight * case.size for weight in drawn]
        leaves = [weight.double().requires_grad_() for weight in weights]
        true_loss = step_there.loss_of(leaves, batch, case.loss_weight)
        gradient = _flat(torch.autograd.grad(true_loss, leaves))
        made = _made(worker, case, [weight.clone() for weight in weights], batch)
        if case not in _OVERFLOWS:
            _require_step(made, case, weights, gradient)
        else:
            _require_nothing(made, case, weights)
        _require_loss(made, case, float(true_loss))
    yield passed("copies_in_fp16", "the loss was computed once, with copies of the weights in fp16")
    yield passed("masters_moved", "the masters moved by the true gradient, also by less than fp16 can hold")
    yield passed("overflow_left_out", "where a gradient was inf or NaN nothing moved, the scale was halved")


def _largest_scale(weights: list[Tensor], batch: Any) -> float:
    """Return the largest scale, to a tenth, at which a backward pass in fp16 has finite gradients."""
    copies = [weight.half().requires_grad_() for weight in weights]
    loss, scale, finite = step_there.loss_of(copies, batch, 1.0), 1024.0, True
    while finite:
        scale *= 1.1
        gradients = torch.autograd.grad(loss * scale, copies, retain_graph=True)
        finite = all(gradient.isfinite().all() for gradient in gradients)
    return scale / 1.1


def _made(worker: bed.Worker, case: Case, weights: list[Tensor], batch: Any) -> _Made:
    """Return weights after a step, loss and scale; reject one that asks for the loss otherwise."""
    made = f"{step_there.__name__}:make", bed.Handle(0), weights, batch, *case[2:]
    told = bed.asked(worker, *made, about=f"for {case.what}")
    returned, given = told["returned"], told["given"]
    numbers = [float_in(each) for each in returned] if isinstance(returned, tuple | list) else []
    if len(numbers) != 2 or None in numbers:
        bed.reject_type("two floats were", returned, "return loss.item(), scale")
    if len(given) != 1:
        bed.reject("loss_calls", f"loss_fn was called {len(given)} times", "call it once, with all copies")
    if set(given[0]) != {torch.float16}:
        seen = ", ".join(sorted(map(str, set(given[0]))))
        bed.reject("not_in_fp16", f"loss_fn was given weights in {seen}", "give it weight.half() of each")
    if not told["kept"] or any(weight.dtype != torch.float32 for weight in told["after"]):
        said = "the list holds other tensors after the step, or no longer in fp32: whoever else has the "
        hint = "change each weight in place: weight -= lr * gradient; only the copies are in fp16"
        bed.reject("masters_replaced", f"{said}weights keeps the old ones", hint)
    return told["after"], numbers[0] or 0.0, numbers[1] or 0.0


def _require_step(made: _Made, case: Case, weights: list[Tensor], gradient: Tensor) -> None:
    """Reject another scale or step than those of SGD in fp64."""
    after, _, scale = made
    if scale != case.scale:
        said = f"for {case.what} the scale returned is {scale:g}, it was {case.scale:g}, and no gradient of "
        said += "loss times scale is too large for fp16: all are finite"
        hint = (
            "without an overflow return the scale as it is; multiply in fp32, where loss and scale are, and "
        )
        hint += "ask each gradient: a norm in fp16 overflows where none of them does"
        bed.reject("scale_moved", said, hint)
    right, moved = -case.lr * gradient, _flat(after) - _flat(weights)
    off, length = (float(each.norm() / right.norm()) for each in (moved - right, moved))
    if not off <= _WITHIN:
        along = float(moved @ right / (moved.norm() * right.norm()))
        said = f"for {case.what} the weights moved {length:.3g} times as far as the gradient takes them, "
        said += f"in another direction (of cosine {along:.2g} to it)" if along < 0.9 else f"{off:.0%} off"
        hint = "weight -= lr * gradient, in fp32: there the scaled loss's gradient is divided by the scale"
        bed.reject("step_elsewhere", said, hint)


def _require_loss(made: _Made, case: Case, true_loss: float) -> None:
    if not math.isclose(made[1], true_loss, rel_tol=_WITHIN):
        said = f"for {case.what} the loss returned is {made[1]:.6g}, and the loss is {true_loss:.6g}"
        bed.reject("loss_scaled", said, "the scale goes into backward, not into what is returned")


def _require_nothing(made: _Made, case: Case, weights: list[Tensor]) -> None:
    after, _, scale = made
    pairs = zip(after, weights, strict=True)
    if changed := [str(place) for place, (a, b) in enumerate(pairs, start=1) if not torch.equal(a, b)]:
        said = f"with {case.what} the weights {', '.join(changed)} of 3 moved"
        hint = "look at all gradients first, for inf, -inf and NaN (by isfinite), then move all or none"
        bed.reject("overflow_applied", said, hint)
    if scale != case.scale / 2:
        said = f"with {case.what} the scale returned is {scale:g}; half of {case.scale:g} is right"
        bed.reject("scale_not_halved", said, "after an overflow return scale / 2")


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.detach().double().reshape(-1) for each in tensors])
