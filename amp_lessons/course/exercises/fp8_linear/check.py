"""A linear function in eight bits: its casts are watched, and its three products held against fp64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.fp8_linear import linear_there
from amp_lessons.course.exercises.small_formats import mistakes
from amp_lessons.course.exercises.small_formats.watching_there import BEHAVIOURS, FORMAT_OF

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
_WANTED = {"x": E4M3, "weight": E4M3, "gradient": E5M2}
_PRODUCTS: dict[str, tuple[str, str, Callable[[Tensor, Tensor], Tensor]]] = {
    "the output": ("x", "weight", lambda x, weight: x @ weight.t()),
    "the gradient of x": ("gradient", "weight", lambda gradient, weight: gradient @ weight),
    "the gradient of weight": ("gradient", "x", lambda gradient, x: gradient.t() @ x),
}


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Run forward and backward by either behaviour of PyTorch's cast; the first wrong number decides."""
    fp8_linear = bed.function(worker, "fp8_linear", torch.zeros(1, 1), torch.zeros(1, 1))
    tried = cases(draw)
    for behaviour, whose in BEHAVIOURS.items():
        for case in tried:
            _judge_run(fp8_linear, case, behaviour, f"for {case.what} {whose}")
    yield passed("three_products", "each of the three products is that of scaled casts, taken back")
    yield passed("formats", "x and weight are cast to E4M3, the gradient to E5M2, each rounded once")
    yield passed("corners", "zeros, no rows, inf and NaN come out as they should")


@dataclass(frozen=True)
class ProductsCase:
    """``x`` (rows, inputs), ``weight`` (outputs, inputs), ``gradient`` (rows, outputs), in one dtype.

    An ``ordinary`` case has operands that can be recognised in their casts.
    """

    what: str
    x: Tensor
    weight: Tensor
    gradient: Tensor
    ordinary: bool = False


def cases(draw: torch.Generator) -> list[ProductsCase]:
    """Draw what to try, from the simplest to the last corner."""
    plain = _drawn("fp32 operands", draw, (1.0, 0.05, 1e-6))
    x, weight, gradient = plain.x, plain.weight, plain.gradient
    return [
        plain,
        _drawn("small operands", draw, (1e-3, 1e-4, 1e-7)),
        _drawn("large operands", draw, (1e4, 1e2, 1e3)),
        _drawn("bf16 operands", draw, (1.0, 0.05, 1e-6), torch.bfloat16),
        _drawn("fp16 operands", draw, (1.0, 0.05, 1e-3), torch.float16),
        ProductsCase("x of zeros", x * 0, weight, gradient),
        ProductsCase("gradients of zeros", x, weight, gradient * 0),
        ProductsCase("one element", x[:1, :1], weight[:1, :1], gradient[:1, :1]),
        ProductsCase("x without rows", x[:0], weight, gradient[:0]),
        ProductsCase("a gradient with inf", x, weight, _with(gradient, math.inf)),
        ProductsCase("a gradient with NaN", x, weight, _with(gradient, math.nan)),
        ProductsCase("x with inf", _with(x, math.inf), weight, gradient),
    ]


def _drawn(
    what: str, draw: torch.Generator, sizes: tuple[float, float, float], dtype: torch.dtype = torch.float32
) -> ProductsCase:
    """Draw operands of these sizes, with one outlier each; no side is as long as another."""
    drawn: list[Tensor] = []
    for size, shape in zip(sizes, ((24, 40), (16, 40), (24, 16)), strict=True):
        numbers = torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-3.0).exp()
        place = int(torch.randint(numbers.numel(), (1,), generator=draw))
        numbers.view(-1)[place] = 11.0 * (-1) ** place
        drawn.append((numbers * size).to(dtype))
    return ProductsCase(what, drawn[0], drawn[1], drawn[2], ordinary=True)


def _with(numbers: Tensor, value: float) -> Tensor:
    changed = numbers.clone()
    changed[3, 5] = value
    return changed


# --- one run: its form, its casts, its three results


def _judge_run(fp8_linear: bed.LearnersFunction, case: ProductsCase, behaviour: str, what: str) -> None:
    x, weight, there = case.x.clone(), case.weight.clone(), f"{linear_there.__name__}:run"
    given = x, weight, case.gradient.clone()
    ran, _ = fp8_linear.called_by(there, *given, about=f"forward, {what}", extra=(behaviour,))
    output, shape = ran["results"][0], (case.x.shape[0], case.weight.shape[0])
    hint = "end with .to(x.dtype); weight has one row per output"
    bed.require_tensor(output, case.x.dtype, shape, what, hint)
    hint = "compute with new tensors: x / scale"
    bed.require_unchanged((x, weight), (case.x, case.weight), "x and weight", hint)
    operands = {name: getattr(case, name).double() for name in _WANTED}
    casts = _casts(ran, operands, what) if case.ordinary else None
    for name, result in zip(_PRODUCTS, ran["results"], strict=True):
        bed.require_not_raised(None if name == "the output" else ran["raised"], f"backward, {what}")
        if not isinstance(result, Tensor):
            said = f"{what}, no gradient reaches {name.split()[-1]}: training would leave it as it is"
            hint = "backward returns a gradient per argument of forward; detach() and no_grad() cut the graph"
            bed.reject("gradient_not_flowing", said, hint)
        if casts is None:
            _require_corner(result, name, operands, what)
        else:
            _require_product(result, name, casts, operands, f"{name}, {what}")


def _require_corner(seen: Tensor, name: str, operands: Mapping[str, Tensor], what: str) -> None:
    """Hold a result against that without casts, where operands say too little of their scales."""
    left, right, formula = _PRODUCTS[name]
    wanted = formula(operands[left], operands[right])
    finite = bool(seen.isfinite().all())
    if finite and not wanted.isfinite().all():
        raise bed.Rejected(mistakes.inf_hidden(what, f"{name} is finite"))
    if wanted.isfinite().all() and not (seen.double() - wanted).norm() <= 0.2 * wanted.norm():
        if operands["x"].any() and operands["gradient"].any():
            _reject_product(seen, wanted, f"{name}, {what}")
        raise bed.Rejected(mistakes.zero_amax(what, f"{name} is not {'zero' if finite else 'finite'}"))


# --- casts: of which operand, and by which number it was multiplied before

_SAME = 2.0**-7  # more than bf16 rounds, less than any cast to eight bits


@dataclass(frozen=True)
class Cast:
    """A cast of a matrix, which was multiplied by a number before; ``stands_for`` is what it says of it."""

    name: str
    matrix: Tensor
    multiplier: float
    stands_for: Tensor


def _cast(source: Tensor, dtype: torch.dtype, name: str, matrix: Tensor) -> Cast | None:
    """Read a cast as one of this matrix, as it is or transposed; None where it is no multiple of it."""
    source = source.mT if source.shape == matrix.shape[::-1] else source
    if source.shape != matrix.shape or not source.any():
        return None
    factor = float((source * matrix).sum() / matrix.square().sum())
    if not factor or ((source - factor * matrix).abs() > _SAME * (factor * matrix).abs()).any():
        return None
    return Cast(name, matrix, factor, source.float().to(dtype).double() / factor)


def _casts(ran: Mapping[str, Any], operands: Mapping[str, Tensor], what: str) -> list[Cast]:
    """Return the casts of operands; reject the first that is wrong."""
    casts: list[Cast] = []
    for where in ("forward", "backward"):
        for source, dtype in ran[where]:
            read = [_cast(source, dtype, name, matrix) for name, matrix in operands.items()]
            cast = next(filter(None, read), None)
            bed.require_none(_mistakes(source, dtype, cast, casts, f"{where}, {what}"))
            casts += [cast] if cast else []
    return casts


def _mistakes(
    source: Tensor, dtype: torch.dtype, cast: Cast | None, earlier: list[Cast], what: str
) -> Iterator[Finding]:
    if cast is None and any(_cast(source, dtype, "", each.stands_for) for each in earlier):
        said = f"{what}: what had been cast to 8 bits was cast again, which rounds it a second time"
        yield failed(
            "quantised_twice",
            said,
            "transpose the 8-bit values of the forward pass, or cast x and weight again, to the same format",
        )
    if what.startswith("backward") and dtype == E4M3 and (cast is None or cast.name == "gradient"):
        said = f"{what}: a gradient was cast to E4M3, by you, or by autograd, which does so behind .to(E4M3)"
        hint = "write the backward pass: a gradient is scaled and cast to torch.float8_e5m2"
        yield failed("gradient_format", said, hint)
    if cast is None:
        said = f"{what}: a tensor of shape {tuple(source.shape)} was cast that is no operand times one number"
        hint = "one scale per tensor; cast x, weight and gradient, each once, and no result"
        yield failed("unknown_cast", said, hint)
        return
    if dtype != _WANTED[cast.name]:
        said = f"{what}: {cast.name} was cast to E5M2, which has two bits of mantissa where E4M3 has three"
        yield failed("forward_format", said, "torch.float8_e4m3fn for x and weight, in all three products")
    amax, scale, of = float(cast.matrix.abs().max()), 1 / abs(cast.multiplier), f"the cast of {cast.name}"
    misplaced = mistakes.misplaced(amax, scale, FORMAT_OF[dtype], f"{what}, {of}")
    yield from [misplaced] if misplaced else []


# --- products

_OF_A_SUM = 1e-5  # of the sum of magnitudes: fp32 adds a few dozen products far more exactly


def _require_product(
    seen: Tensor, result: str, casts: list[Cast], operands: Mapping[str, Tensor], what: str
) -> None:
    """Reject what is no product of these casts, but for sums in fp32 and the rounding to its dtype."""
    left, right, formula = _PRODUCTS[result]
    of = {name: [cast.stands_for for cast in casts if cast.name == name] for name in operands}
    bed.require_none(_not_cast(name, what) for name in (left, right) if not of[name])
    info, wanted = torch.finfo(seen.dtype), []
    for a, b in product(of[left], of[right]):
        wanted.append(formula(a, b))
        allowed = _OF_A_SUM * formula(a.abs(), b.abs()) + info.eps * wanted[-1].abs() + info.tiny
        if ((seen.double() - wanted[-1]).abs() <= allowed).all():
            return
    _reject_product(seen, wanted[0], what)


def _not_cast(name: str, what: str) -> Finding:
    code = "gradient_not_cast" if name == "gradient" else "operand_not_cast"
    said = f"{what}: {name} was not cast to 8 bits in this pass"
    hint = f"cast it with a scale, to {_WANTED[name]}, in every pass and for all products that it is in"
    return failed(code, said, hint)


def _reject_product(seen: Tensor, wanted: Tensor, what: str) -> NoReturn:
    """Say by which constant a product is wrong, or how far off it is."""
    constant = float((seen.double() * wanted).sum() / wanted.square().sum())
    off, rest = (float((seen.double() - k * wanted).norm() / wanted.norm()) for k in (1.0, constant))
    code, how = "wrong_product", f"off by {off:.1e} of its norm from"
    if rest < 1e-4 * abs(constant):
        code, how = "not_unscaled", f"{constant:.3g} times"
    hint = "multiply the 8-bit values of both, in fp32, then by their two scales, and by nothing else"
    bed.reject(code, f"{what}: the result is {how} the product of what was cast", hint)
