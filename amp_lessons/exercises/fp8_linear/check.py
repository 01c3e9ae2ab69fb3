"""A linear function in eight bits: its casts are watched, and its three products held against fp64."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, reject, require_none, run
from amp_lessons.exercises.fp8_linear.cases import Case, cases
from amp_lessons.exercises.fp8_linear.operands import mistakes_in_casts, recognised
from amp_lessons.exercises.fp8_linear.products import mistakes_in_product, side
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.small_formats import mistakes
from amp_lessons.exercises.small_formats.watching import BEHAVIOURS, CastWatch, SeenCast
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding]:
    """Run forward and backward by either behaviour of PyTorch's cast; what is not so is rejected."""
    fp8_linear = attempt.function(torch.zeros(1, 1), torch.zeros(1, 1))
    for behaviour, whose in BEHAVIOURS.items():
        for case in cases():
            ran = _run(fp8_linear, case, behaviour, f"{case.what} {whose}")
            _JUDGES[case.kind](ran, case)
    yield passed("three_products", "each of the three products is that of scaled casts, taken back")
    yield passed("formats", "x and weight are cast to E4M3, the gradient to E5M2, each rounded once")
    yield passed("corners", "zeros, no rows, inf and NaN come out as they should")


@dataclass(frozen=True)
class Ran:
    """Output and gradients of one run, and the casts seen in each pass."""

    what: str
    output: Tensor
    to_x: Tensor
    to_weight: Tensor
    forward: list[SeenCast]
    backward: list[SeenCast]


def _run(fp8_linear: LearnersFunction, case: Case, behaviour: str, what: str) -> Ran:
    x, weight = (each.clone().requires_grad_() for each in (case.x, case.weight))
    output, forward = _watched(lambda: fp8_linear.function(x, weight), behaviour, f"forward, for {what}")
    _require_output(output, case, what)
    if case.kind == "ordinary":
        _require_forward(output.detach(), forward, case, what)

    def back() -> Any:
        return torch.autograd.grad(output, (x, weight), case.gradient.clone(), allow_unused=True)

    _require_graph(output.requires_grad, "x and weight", what)
    (to_x, to_weight), backward = _watched(back, behaviour, f"backward, for {what}")
    _require_graph(to_x is not None, "x", what)
    _require_graph(to_weight is not None, "weight", what)
    if any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in ((x, case.x), (weight, case.weight))):
        raise Rejected(common_findings.inputs_changed("x and weight", "compute with new tensors: x / scale"))
    return Ran(what, output.detach(), to_x, to_weight, forward, backward)


def _watched(code: Callable[[], Any], behaviour: str, about: str) -> tuple[Any, list[SeenCast]]:
    watch = CastWatch(behaviour)

    def watched() -> Any:
        with watch:
            return code()

    return run(watched, about=about), watch.seen


def _require_output(output: Any, case: Case, what: str) -> None:
    shape = (case.x.shape[0], case.weight.shape[0])
    if not isinstance(output, Tensor) or output.shape != shape or output.dtype != case.x.dtype:
        raise Rejected(
            common_findings.wrong_return_type(
                f"a tensor of shape {shape} and of the dtype of x, {case.x.dtype}, was",
                f"{describe(output)}, for {what}",
                "end with .to(x.dtype); weight has one row per output",
            )
        )


def _require_graph(flows: bool, to: str, what: str) -> None:
    if not flows:
        reject(
            "gradient_not_flowing",
            f"for {what}, no gradient reaches {to}: training would leave them as they are",
            "an autograd.Function has a backward that returns one gradient per argument of forward; detach() "
            "and no_grad() cut the graph where there is none",
        )


def _matrices(case: Case) -> Mapping[str, Tensor]:
    return {"x": case.x.double(), "weight": case.weight.double(), "gradient": case.gradient.double()}


def _require_forward(output: Tensor, casts: list[SeenCast], case: Case, what: str) -> None:
    matrices = {name: matrix for name, matrix in _matrices(case).items() if name != "gradient"}
    where = f"forward, for {what}"
    require_none(mistakes_in_casts(casts, matrices, ("x", "weight"), where))
    seen = [operand for cast in casts if (operand := recognised(cast, matrices))]
    left, right = (side(name, matrices[name], seen) for name in ("x", "weight"))
    require_none(mistakes_in_product(output, left, right.turned(), f"the output, for {what}"))


def _require_backward(ran: Ran, case: Case) -> None:
    matrices = _matrices(case)
    casts = ran.forward + ran.backward
    require_none(mistakes_in_casts(casts, matrices, ("x", "weight", "gradient"), f"backward, for {ran.what}"))
    seen = [operand for cast in casts if (operand := recognised(cast, matrices))]
    x, weight, gradient = (side(name, matrix, seen) for name, matrix in matrices.items())
    of = {"x": (ran.to_x, gradient, weight), "weight": (ran.to_weight, gradient.turned(), x)}
    for name, (result, left, right) in of.items():
        require_none(mistakes_in_product(result, left, right, f"the gradient of {name}, for {ran.what}"))


def _require_finite(ran: Ran, case: Case) -> None:
    """Reject NaN, and numbers for zeros, where an operand is all zeros, or has one element or none."""
    x, weight, gradient = _matrices(case).values()
    results = {
        "output": (ran.output, x @ weight.t()),
        "gradient of x": (ran.to_x, gradient @ weight),
        "gradient of weight": (ran.to_weight, gradient.t() @ x),
    }
    for name, (result, wanted) in results.items():
        if not result.isfinite().all() or (result.any() and not wanted.any()):
            effect = f"the {name} is {'not zero' if result.isfinite().all() else 'not finite'}"
            raise Rejected(mistakes.zero_amax(f"for {ran.what}", effect))


def _require_not_finite(ran: Ran, case: Case) -> None:
    """Reject finite results of an operand that is not."""
    results = {"gradient of weight": ran.to_weight}
    results["output" if not case.x.isfinite().all() else "gradient of x"] = (
        ran.output if not case.x.isfinite().all() else ran.to_x
    )
    for name, result in results.items():
        if result.isfinite().all():
            raise Rejected(mistakes.inf_hidden(f"for {ran.what}", f"the {name} is finite"))


_JUDGES = {"ordinary": _require_backward, "finite": _require_finite, "not finite": _require_not_finite}
