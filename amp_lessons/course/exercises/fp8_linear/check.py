"""A linear function in eight bits: its casts are watched, and its three products held against fp64."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.attempt import Rejected, reject, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, described, function, require_not_raised
from amp_lessons.course.exercises.fp8_linear import linear_there
from amp_lessons.course.exercises.fp8_linear.cases import ProductsCase, cases
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.course.exercises.small_formats.watching_there import BEHAVIOURS, FORMAT_OF, SeenCast

_THERE = linear_there.__name__


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Run forward and backward by either behaviour of PyTorch's cast; what is not so is rejected."""
    fp8_linear = function(worker, "fp8_linear", torch.zeros(1, 1), torch.zeros(1, 1))
    for behaviour, whose in BEHAVIOURS.items():
        for number, case in enumerate(cases()):
            ran = _run(fp8_linear, case, behaviour, f"{case.what} {whose}")
            _JUDGES[case.kind](ran, case)
            if number == 0:
                _require_fresh_cast(fp8_linear, case, behaviour)
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


def _run(fp8_linear: LearnersFunction, case: ProductsCase, behaviour: str, what: str) -> Ran:
    x, weight = case.x.clone(), case.weight.clone()
    seen, _ = fp8_linear.called_by(f"{_THERE}:run", x, weight, case.gradient.clone(), extra=(behaviour,))
    require_not_raised(seen["raised"], f"forward, for {what}")
    output, forward, backward = seen["output"], _casts(seen["forward"]), _casts(seen["backward"])
    _require_output(output, case, what)
    if case.kind == "ordinary":
        _require_forward(output, forward, case, what)
    _require_graph(seen["has_graph"] is True, "x and weight", what)
    require_not_raised(seen["raised_backward"], f"backward, for {what}")
    to_x, to_weight = seen["to_x"], seen["to_weight"]
    _require_graph(isinstance(to_x, Tensor), "x", what)
    _require_graph(isinstance(to_weight, Tensor), "weight", what)
    if any(not torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in ((x, case.x), (weight, case.weight))):
        raise Rejected(common_findings.inputs_changed("x and weight", "compute with new tensors: x / scale"))
    return Ran(what, output, to_x, to_weight, forward, backward)


def _require_fresh_cast(fp8_linear: LearnersFunction, case: ProductsCase, behaviour: str) -> None:
    """Reject a cast that is kept although an optimizer has changed the weight since."""
    seen, _ = fp8_linear.called_by(
        f"{_THERE}:run_twice", case.x.clone(), case.weight.clone(), extra=(behaviour,)
    )
    require_not_raised(seen["raised"], "forward")
    require_not_raised(seen["raised_again"], "forward, after the weight was changed in place")
    changed = {"weight": case.weight.flip(0).double()}
    if not any(recognised(cast, changed) for cast in _casts(seen["casts"])):
        reject(
            "stale_cast",
            "the weight was changed in place, as an optimizer does, and was not cast again: the product is "
            "that of the weight that was there before",
            "cast the weight in every forward pass; what is kept is right until the next step only",
        )


def _casts(told: Any) -> list[SeenCast]:
    return [SeenCast(*each) for each in told]


def _require_output(output: Any, case: ProductsCase, what: str) -> None:
    shape = (case.x.shape[0], case.weight.shape[0])
    if not isinstance(output, Tensor) or output.shape != shape or output.dtype != case.x.dtype:
        raise Rejected(
            common_findings.wrong_return_type(
                f"a tensor of shape {shape} and of the dtype of x, {case.x.dtype}, was",
                f"{described(output)}, for {what}",
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


def _matrices(case: ProductsCase) -> Mapping[str, Tensor]:
    return {"x": case.x.double(), "weight": case.weight.double(), "gradient": case.gradient.double()}


def _require_forward(output: Tensor, casts: list[SeenCast], case: ProductsCase, what: str) -> None:
    matrices = {name: matrix for name, matrix in _matrices(case).items() if name != "gradient"}
    where = f"forward, for {what}"
    require_none(mistakes_in_casts(casts, matrices, ("x", "weight"), where))
    seen = [operand for cast in casts if (operand := recognised(cast, matrices))]
    left, right = (side(name, matrices[name], seen) for name in ("x", "weight"))
    require_none(mistakes_in_product(output, left, right.turned(), f"the output, for {what}"))


def _require_backward(ran: Ran, case: ProductsCase) -> None:
    matrices = _matrices(case)
    casts = ran.forward + ran.backward
    require_none(mistakes_in_casts(casts, matrices, ("x", "weight", "gradient"), f"backward, for {ran.what}"))
    seen = [operand for cast in casts if (operand := recognised(cast, matrices))]
    x, weight, gradient = (side(name, matrix, seen) for name, matrix in matrices.items())
    of = {"x": (ran.to_x, gradient, weight), "weight": (ran.to_weight, gradient.turned(), x)}
    for name, (result, left, right) in of.items():
        require_none(mistakes_in_product(result, left, right, f"the gradient of {name}, for {ran.what}"))


def _require_finite(ran: Ran, case: ProductsCase) -> None:
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


def _require_not_finite(ran: Ran, case: ProductsCase) -> None:
    """Reject finite results of an operand that is not."""
    results = {"gradient of weight": ran.to_weight}
    results["output" if not case.x.isfinite().all() else "gradient of x"] = (
        ran.output if not case.x.isfinite().all() else ran.to_x
    )
    for name, result in results.items():
        if result.isfinite().all():
            raise Rejected(mistakes.inf_hidden(f"for {ran.what}", f"the {name} is finite"))


_JUDGES = {"ordinary": _require_backward, "finite": _require_finite, "not finite": _require_not_finite}


# --- which operand was cast, by which number it was multiplied before, and what is wrong with that

WANTED = {"x": torch.float8_e4m3fn, "weight": torch.float8_e4m3fn, "gradient": torch.float8_e5m2}
_SAME = 2.0**-7  # more than bf16 rounds, less than any cast to eight bits


@dataclass(frozen=True)
class Operand:
    """A cast of an operand: of which, the number it was multiplied by, and what it stands for afterwards."""

    name: str
    multiplier: float
    stands_for: Tensor
    dtype: torch.dtype


def multiple_of(seen: Tensor, matrix: Tensor) -> float | None:
    """Return the number that times ``matrix`` is ``seen``; None where there is none."""
    if seen.shape != matrix.shape or not seen.any():
        return None
    factor = float((seen * matrix).sum() / matrix.square().sum())
    same = (seen - factor * matrix).abs() <= _SAME * (factor * matrix).abs()
    return factor if factor and bool(same.all()) else None


def recognised(cast: SeenCast, matrices: Mapping[str, Tensor]) -> Operand | None:
    """Say which operand was cast, as it is or transposed; None where it is none of them times one number."""
    for name, matrix in matrices.items():
        turned = [(cast.source.mT, cast.values.mT)] if cast.source.ndim > 1 else []
        for source, values in [(cast.source, cast.values), *turned]:
            factor = multiple_of(source, matrix)
            if factor is not None:
                return Operand(name, factor, values / factor, cast.dtype)
    return None


def mistakes_in_casts(
    casts: Sequence[SeenCast], matrices: Mapping[str, Tensor], needed: Sequence[str], what: str
) -> Iterator[Finding]:
    """Yield what is wrong with these casts; ``needed`` are the operands that have to be among them."""
    found = [recognised(cast, matrices) for cast in casts]
    for place, (cast, operand) in enumerate(zip(casts, found, strict=True)):
        if operand is None:
            yield _of_something_else(cast, casts[:place], "gradient" in needed, what)
            continue
        yield from _mistakes_in(operand, matrices[operand.name], what)
    for name in needed:
        if all(operand is None or operand.name != name for operand in found):
            yield not_cast(name, what)


def _mistakes_in(operand: Operand, matrix: Tensor, what: str) -> Iterator[Finding]:
    element, of = FORMAT_OF[operand.dtype], f"{what}, the cast of {operand.name}"
    if operand.dtype != WANTED[operand.name]:
        yield gradient_format(what) if operand.name == "gradient" else _forward_format(operand.name, what)
    misplaced = mistakes.misplaced(float(matrix.abs().max()), 1 / abs(operand.multiplier), element, of)
    if misplaced is not None and operand.multiplier == 1:
        values = operand.stands_for
        underflowed, saturated = (values == 0) & (matrix != 0), matrix.abs() > element.max
        yield mistakes.not_scaled(of, *(float(each.double().mean()) for each in (underflowed, saturated)))
    if misplaced is not None:
        yield misplaced


def _of_something_else(cast: SeenCast, earlier: Sequence[SeenCast], backward: bool, what: str) -> Finding:
    again = {str(place): each.values for place, each in enumerate(earlier)}
    if recognised(cast, again) is not None:
        return failed(
            "quantised_twice",
            f"{what}: what had been cast to 8 bits was taken back and cast again: it is rounded a second "
            "time, by another scale or along another side to other numbers",
            "transpose the 8-bit values, or cast the transposed tensor from high precision",
        )
    if backward and cast.dtype == torch.float8_e4m3fn:
        return gradient_format(what)
    return failed(
        "unknown_cast",
        f"{what}: a tensor of shape {tuple(cast.source.shape)} was cast to {cast.dtype}, and it is no "
        "operand times one number",
        "one scale per tensor; cast x, weight and gradient, and no result",
    )


def gradient_format(what: str) -> Finding:
    """Report that a gradient was cast as weights are."""
    return failed(
        "gradient_format",
        f"{what}: a gradient was cast to E4M3, the format of weights: autograd does so by itself where "
        ".to(dtype) is part of its graph, and without a scale",
        "write the backward pass: a gradient is scaled and cast to torch.float8_e5m2",
    )


def _forward_format(name: str, what: str) -> Finding:
    return failed(
        "forward_format",
        f"{what}: {name} was cast to E5M2, which has two bits of mantissa where E4M3 has three",
        "torch.float8_e4m3fn for x and weight, in all three products",
    )


def not_cast(name: str, what: str) -> Finding:
    """Report an operand that keeps its digits."""
    if name == "gradient":
        return failed(
            "gradient_not_cast",
            f"{what}: the gradient was multiplied without a cast to 8 bits, or not seen to be cast",
            "cast it with a scale to torch.float8_e5m2, for both products of the backward pass",
        )
    return failed(
        "operand_not_cast",
        f"{what}: {name} was multiplied without a cast to 8 bits, or not seen to be cast",
        "cast it with a scale, tensor.to(torch.float8_e4m3fn), in all products that it is part of",
    )


# --- one product of a linear function, held against the same in fp64, and the mistakes that explain another

_OF_A_SUM = 1e-5  # of the sum of magnitudes: fp32 adds a few dozen products far more exactly
_OF_16_BITS = 0.02


@dataclass(frozen=True)
class Side:
    """One operand of a product: as it was given, and as the casts that were seen stand for it."""

    name: str
    matrix: Tensor
    casts: tuple[Operand, ...]

    def turned(self) -> Side:
        """Return the transpose."""
        turned = (Operand(c.name, c.multiplier, c.stands_for.mT, c.dtype) for c in self.casts)
        return Side(self.name, self.matrix.mT, tuple(turned))


def mistakes_in_product(seen: Tensor, left: Side, right: Side, what: str) -> Iterator[Finding]:
    """Yield what is wrong with ``seen``, which should be left · right; nothing where it is right."""
    pairs = list(product(left.casts, right.casts))
    if any(_close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for) for a, b in pairs):
        return
    for a, b in pairs:
        yield from _wrong_scales(seen, a, b, what)
        yield from _left_out(seen, left, right, a, b, what)
    a, b = pairs[0]
    yield from _another_scale(seen, a, b, what)
    off = float((seen.double() - a.stands_for @ b.stands_for).norm() / (a.stands_for @ b.stands_for).norm())
    if off < _OF_16_BITS:
        yield mistakes.computed_in_16_bits(what, f"the product is off by {off:.1e} of its norm")
    yield failed(
        "wrong_product",
        f"{what}: the product of what was cast is another, by {off:.2g} of its norm",
        "multiply the 8-bit values in fp32, then by both scales; nothing else belongs to the result",
    )


def _close(seen: Tensor, wanted: Tensor, left: Tensor, right: Tensor, factor: float = 1.0) -> bool:
    """Whether a result is this product times a factor, but for sums in fp32 and the rounding to its dtype."""
    info = torch.finfo(seen.dtype)
    allowed = abs(factor) * (_OF_A_SUM * (left.abs() @ right.abs()) + info.eps * wanted.abs()) + info.tiny
    return bool(((seen.double() - factor * wanted).abs() <= allowed).all())


def _wrong_scales(seen: Tensor, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether the product is right but for scales."""
    both = a.multiplier * b.multiplier
    for factor, missing in (
        (both, "neither scale was"),
        (a.multiplier, f"the scale of {a.name} was not"),
        (b.multiplier, f"the scale of {b.name} was not"),
    ):
        if factor != 1 and _close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for, factor):
            yield _not_unscaled(f"{what}: {missing} multiplied by")
    if _close(seen, a.stands_for @ b.stands_for, a.stands_for, b.stands_for, both * both):
        yield mistakes.scale_inverted(what, "the product was divided by the scales")


def _another_scale(seen: Tensor, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether the product is right but for a constant, as with another operand's scale."""
    wanted = a.stands_for @ b.stands_for
    known = (a.multiplier, b.multiplier, a.multiplier * b.multiplier, 1)
    factor = float((seen.double() * wanted).sum() / (wanted * wanted).sum().clamp(min=1e-300))
    if any(math.isclose(factor, each, rel_tol=1e-3) for each in known):
        return  # which has an explanation of its own, or is no mistake in a scale
    if _close(seen, wanted, a.stands_for, b.stands_for, factor):
        yield failed(
            "not_unscaled",
            f"{what}: the result is {factor:.3g} times the product, as if a scale were another operand's",
            f"multiply by the scales of the two operands of this product: {a.name} and {b.name}",
        )


def _not_unscaled(seen: str) -> Finding:
    return failed(
        "not_unscaled",
        f"{seen}: the result is that of other operands, larger or smaller by a constant",
        "the 8-bit values stand for values · scale: multiply their product by both scales",
    )


def _left_out(seen: Tensor, left: Side, right: Side, a: Operand, b: Operand, what: str) -> Iterator[Finding]:
    """Find out whether an operand took part as it was before its cast."""
    if _close(seen, left.matrix @ b.stands_for, left.matrix, b.stands_for):
        yield not_cast(left.name, what)
    if _close(seen, a.stands_for @ right.matrix, a.stands_for, right.matrix):
        yield not_cast(right.name, what)
    if _close(seen, left.matrix @ right.matrix, left.matrix, right.matrix):
        yield not_cast(left.name, what)


def side(name: str, matrix: Tensor, operands: Sequence[Operand]) -> Side:
    """Return one operand with all its casts."""
    return Side(name, matrix, tuple(each for each in operands if each.name == name))
