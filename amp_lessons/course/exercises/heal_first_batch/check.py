"""A root mean square in fp16, whose eps is zero there: what becomes of blank, faint and bright rows?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.catalogue.precision import nan_hidden
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-5}
_GRADIENT_FACTOR = 5
_LEAST_WITH_GRADIENTS = 1e-8  # of eps: below it a blank row's gradient is no number of fp16
_SOME_BLANK, _FAINT, _BRIGHT = "rows of which some are blank", "faint rows", "bright rows"


_WITH_GRADIENTS = "amp_lessons.course.exercises.bed_there:call_with_gradients"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Normalise rows of every size in each dtype, and follow the gradients back through blank ones."""
    normalise = function(worker, "normalise_first_batch", torch.ones(1, 2), 1e-8)
    for case in _cases():
        x = case.x.clone()
        _require_values(_required(normalise(x, case.eps, about=f"for {case.what}"), x, case), case)
    for case in _cases():
        x, weights = case.x.clone(), torch.linspace(-1e-3, 1e-3, case.x.numel()).reshape(case.x.shape)
        told, _ = normalise.called_by(
            _WITH_GRADIENTS, x, case.eps, about=f"for {case.what}", extra=(weights,)
        )
        _required(told["returned"], x, case)
        _require_gradients(told["gradients"], weights, case)
    _require_nan(normalise)
    yield passed("blank", "blank rows give zeros, and good gradients")
    yield passed("sizes", "faint rows and bright ones are right, with the eps given and no other")
    yield passed("small", "what comes back is in the dtype of what went in, and NaN that goes in comes out")


@dataclass(frozen=True)
class RowsCase:
    """Rows of about one ``size``, some of them blank where ``blank`` says so."""

    about: str
    x: Tensor
    eps: float

    @property
    def what(self) -> str:
        """The rows of this case, their dtype and eps, as a message names them."""
        return f"{self.about} in {dtype_name(self.x.dtype)} with eps={self.eps:g}"

    def right(self, x: Tensor) -> Tensor:
        """Normalise in the dtype of ``x``."""
        return x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()


def _cases() -> Iterator[RowsCase]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):  # what is wrong in fp32 was not rounded away
        yield _case("a single blank row", dtype, 0.0, (1, 8))
        yield _case(_FAINT, dtype, 1e-4)
        yield _case(_SOME_BLANK, dtype, 1.0, blank=True)
        yield _case(_BRIGHT, dtype, 10_000.0)
        yield _case("rows of one number", dtype, 1e-4, (5, 1))
        yield _case("ordinary rows", dtype, 0.1, eps=1e-2)
        yield _case("images of rows of which some are blank", dtype, 0.1, (2, 3, 8, 16), eps=1e-5, blank=True)
        yield _case(_SOME_BLANK, dtype, 1.0, eps=1e-16, blank=True)
        yield _case(_SOME_BLANK, dtype, 1.0, eps=1e-30, blank=True)
    yield _case("rows of 4,096 numbers", torch.float16, 3.0, (4, 4096))


def _case(
    about: str,
    dtype: torch.dtype,
    size: float,
    shape: tuple[int, ...] = (12, 8),
    *,
    eps: float = 1e-8,
    blank: bool = False,
) -> RowsCase:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(len(about))).clamp(-3, 3) * size
    if blank:
        x.flatten(0, -2)[::3] = 0
    return RowsCase(about, x.to(dtype), eps)


def _required(result: Any, given: Tensor, case: RowsCase) -> Tensor:
    if not torch.equal(given.nan_to_num(), case.x.nan_to_num()):
        reject("inputs_changed", "x was changed in place", "compute with new tensors")
    if not isinstance(result, Tensor) or (result.dtype, result.shape) != (case.x.dtype, case.x.shape):
        reject(
            "wrong_return_type",
            f"{describe(case.x)} was expected for {case.what}, not {described(result)}",
            "what is computed in fp32 in between is cast back to x.dtype at the end",
        )
    return result


def _require_values(seen: Tensor, case: RowsCase) -> None:
    right = case.right(case.x.double())
    tolerance = _TOLERANCES[case.x.dtype]
    wrong = ~((seen.double() - right).abs() <= tolerance * right.abs().amax(-1, keepdim=True)).all(-1)
    if wrong.any():
        _reject(seen[wrong].double(), case.x[wrong].double(), case)


def _reject(seen: Tensor, x: Tensor, case: RowsCase) -> NoReturn:
    """Say what is wrong of rows (rows, width) that are: what eps they were divided with tells most of it."""
    if not x.any(-1).all() and seen[~x.any(-1)].isnan().any():
        _reject_blank(case)
    if case.about == _BRIGHT and not seen.abs().amax() > 0.5:
        reject(
            "squares_overflow",
            f"for {case.what}, rows come out as zeros or NaN: squares of numbers above "
            f"{torch.finfo(torch.float16).max ** 0.5:.0f} are inf in fp16",
            "square in fp32, too",
        )
    if case.about == _FAINT:
        _reject_eps(_eps_used(seen, x), case)
    reject(
        "wrong_normalisation",
        f"for {case.what}, rows are off by "
        f"{float((seen - case.right(x)).abs().nan_to_num(nan=torch.inf).max()):.2g}",
        "x / sqrt(mean of x² + eps), in each row",
    )


def _reject_blank(case: RowsCase) -> NoReturn:
    """Say why a blank row gives NaN."""
    blank = f"for {case.what}, a blank row gives NaN"
    if case.x.dtype == torch.float32:
        _reject_not_added(blank)
    half = dtype_name(case.x.dtype)
    smallest = torch.finfo(case.x.dtype).smallest_normal * torch.finfo(case.x.dtype).eps
    if case.eps >= _LEAST_WITH_GRADIENTS:
        how = f"{case.eps:g} is rounded to 0 in {half}, whose smallest number is {smallest:.1g}"
        hint = "add eps where it is a number: to a mean square in fp32"
    else:
        root = f"the root, {case.eps**0.5:g}, or its reciprocal, {case.eps**-0.5:g}"
        how = f"with eps=1e-08 it gives zeros, so what does not fit into {half} is {root}"
        hint = "divide in fp32 as well, and cast what comes of it"
    raise Rejected(catalogue.precision.eps_vanishes(blank, how, hint))


def _reject_not_added(seen: str) -> NoReturn:
    reject(
        "eps_not_added",
        f"{seen}, and fp32 holds the eps given: it is not added to the mean square, but left out, put "
        "outside the root, or made a floor",
        "x / sqrt(mean of x² + eps), in each row",
    )


def _reject_eps(eps: float, case: RowsCase) -> None:
    if eps < 0.5 * case.eps and case.x.dtype == torch.float32:
        _reject_not_added(f"for {case.what}, rows come out as if eps were {max(eps, 0.0):.2g}")
    if eps < 0.5 * case.eps:
        half = dtype_name(case.x.dtype)
        how = (
            "it is rounded away, or the squares beside it are, which in "
            f"{half} are 0 below {_smallest_root(case.x.dtype):.1g}"
        )
        as_if = f"for {case.what}, rows come out as if eps were {max(eps, 0.0):.2g}"
        before_square = "take x to fp32 before it is squared, and add eps there"
        raise Rejected(catalogue.precision.eps_vanishes(as_if, how, before_square))
    if eps > 2 * case.eps:
        reject(
            "eps_replaced",
            f"for {case.what}, rows come out as if eps were {eps:.2g}: that is no longer NaN, and another "
            "function, which takes faint rows for blank ones",
            "leave eps as it was asked for, and compute where it is not rounded away",
        )


def _eps_used(seen: Tensor, x: Tensor) -> float:
    """Return which eps gives these rows, as the median over their numbers that are not NaN."""
    used = (x / seen).square() - x.square().mean(-1, keepdim=True)
    return float(used[used.isfinite()].median()) if used.isfinite().any() else 0.0


def _smallest_root(dtype: torch.dtype) -> float:
    return float((torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps / 2) ** 0.5)


def _require_gradients(gradients: Any, weights: Tensor, case: RowsCase) -> None:
    if gradients is None or gradients[0] is None:
        raise Rejected(common_findings.gradients_cut_off(f"for {case.what}"))
    if case.about in (_FAINT, "rows of one number") or case.eps < _LEAST_WITH_GRADIENTS:
        return  # a row's gradients all but cancel there, and what is left has no digits, or are no number
    wide = case.x.double().requires_grad_()
    (found,) = gradients
    (right,) = torch.autograd.grad((case.right(wide) * weights).sum(), wide)
    tolerance = _GRADIENT_FACTOR * _TOLERANCES[case.x.dtype]
    size = right.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    if not ((found.double() - right).abs() <= tolerance * size).all():
        finite = "wrong" if found.isfinite().all() else "not finite"
        reject(
            "normalisation_gradients",
            f"for {case.what}, the result is right, and its gradients are {finite}",
            "see to it that no NaN arises, instead of replacing it afterwards: backward meets it all the "
            "same",
        )


def _require_nan(normalise: LearnersFunction) -> None:
    for case in _cases():
        if case.about == _SOME_BLANK:
            x = case.x.clone()
            x[1, 2] = torch.nan
            poisoned = RowsCase("rows with one NaN", x, case.eps)
            result = normalise(x.clone(), case.eps, about=f"for {poisoned.what}")
            if _required(result, x, poisoned)[1].isfinite().any():
                raise Rejected(nan_hidden(f"its row ({poisoned.what})"))
