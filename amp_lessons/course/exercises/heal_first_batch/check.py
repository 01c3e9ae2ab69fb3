"""A root mean square in fp16, whose eps is zero there: what becomes of blank, faint and bright rows?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.audit.rules.dtypes import nan_hidden
from amp_lessons.audit.rules.numbers import eps_vanishes
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}
_LEAST_WITH_GRADIENTS = 1e-8  # of eps: below it a blank row's gradient is no number of fp16
_FAINT, _BRIGHT, _NAN, _ONE = "faint rows", "bright rows", "rows with one NaN", "rows of one number"
_WITH_GRADIENTS = "amp_lessons.course.exercises.bed_there:call_with_gradients"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Normalise rows of every size in each dtype, and follow the gradients back through blank ones."""
    normalise = bed.function(worker, "normalise_first_batch", torch.ones(1, 2), 1e-8)
    cases = list(_cases(draw))
    for case in cases:
        x = case.x.clone()
        _require_values(_required(normalise(x, case.eps, about=f"for {case.what}"), x, case), case)
    for case in cases:
        x, weights = case.x.clone(), torch.linspace(-1e-3, 1e-3, case.x.numel()).reshape(case.x.shape)
        about = f"for {case.what}"
        told, _ = normalise.called_by(_WITH_GRADIENTS, x, case.eps, about=about, extra=(weights,))
        _required(told["returned"], x, case)
        _require_gradients(told["gradients"], weights, case)
    yield passed("blank", "blank rows give zeros, and good gradients")
    yield passed("sizes", "faint rows and bright ones are right, with the eps given and no other")
    yield passed("small", "what comes back is in the dtype of what went in, and NaN that goes in comes out")


@dataclass(frozen=True)
class RowsCase:
    """Rows to normalise with an eps; ``about`` says what is special of them."""

    about: str
    x: Tensor
    eps: float

    @property
    def what(self) -> str:
        """The rows of this case, their dtype and eps, as a message names them."""
        return f"{self.about} in {dtype_name(self.x.dtype)} with eps={self.eps:g}"

    def off(self, seen: Tensor, right: Tensor) -> Tensor:
        """Return which rows are off by more than rounding."""
        tolerance = _TOLERANCES[self.x.dtype] * right.abs().amax(-1, keepdim=True)
        return ~((seen.double() - right).abs() <= tolerance).all(-1)


def _cases(draw: torch.Generator) -> Iterator[RowsCase]:
    blank = "rows of which some are blank"
    for dtype in _TOLERANCES:  # fp32 first: what is wrong there was not rounded away
        for about, size, shape, eps in (
            ("a single blank row", 0.0, (1, 8), 1e-8),
            (_FAINT, 1e-4, (12, 8), 1e-8),
            (blank, 1.0, (12, 8), 1e-8),
            (_BRIGHT, 1e4, (12, 8), 1e-8),
            (_ONE, 1e-4, (5, 1), 1e-8),
            ("ordinary rows", 0.1, (12, 8), 1e-2),
            (f"images of {blank}", 0.1, (2, 3, 8, 16), 1e-5),
            (blank, 1.0, (12, 8), 1e-16),
            (blank, 1.0, (12, 8), 1e-30),
            *([("rows of 4,096 numbers", 3.0, (4, 4096), 1e-8)] if dtype == torch.float16 else []),
        ):
            x = (torch.randn(shape, generator=draw).clamp(-3, 3) * size).to(dtype)
            if blank in about:
                x.flatten(0, -2)[::3] = 0
            yield RowsCase(about, x, eps)
    for dtype in _TOLERANCES:
        x = torch.randn(12, 8, generator=draw).to(dtype)
        x[1, 2] = torch.nan
        yield RowsCase(_NAN, x, 1e-8)


def _normalised(x: Tensor, eps: float | Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def _required(result: Any, given: Tensor, case: RowsCase) -> Tensor:
    bed.require_unchanged([given], [case.x], "the numbers of x", "compute with new tensors")
    hint = "what is computed in fp32 in between is cast back to x.dtype at the end"
    return bed.require_tensor(result, case.x.dtype, case.x.shape, f"for {case.what}", hint)


def _require_values(seen: Tensor, case: RowsCase) -> None:
    if case.about == _NAN:
        if seen[1].isfinite().any():
            raise bed.Rejected(nan_hidden(f"its row ({case.what})"))
    elif (wrong := case.off(seen, _normalised(case.x.double(), case.eps))).any():
        _reject(seen[wrong].double(), case.x[wrong].double(), case)


def _reject(seen: Tensor, x: Tensor, case: RowsCase) -> NoReturn:
    """Say what is wrong of rows (rows, width) that are."""
    where, half = f"for {case.what}", dtype_name(case.x.dtype)
    formula = "x / sqrt(mean of x² + eps), in each row, with the eps given, and computed where it is not lost"
    off = float((seen - _normalised(x, case.eps)).abs().max())
    blank_is_nan = bool(seen[~x.any(-1)].isnan().any())
    if case.x.dtype == torch.float32:
        used = ((x / seen).square() - x.square().mean(-1, keepdim=True)).median()
        if blank_is_nan:
            said = f"{where}, a blank row gives NaN, and fp32 holds the eps given"
            bed.reject("eps_not_added", said, formula)
        if case.about == _FAINT and not case.off(seen, _normalised(x, used)).any():
            bed.reject("eps_not_added", f"{where}, rows come out as if eps were {float(used):.2g}", formula)
    if blank_is_nan or (case.x.dtype == torch.float16 and case.about == _FAINT):
        lost = "a blank row gives NaN" if blank_is_nan else "rows are wrong, and in fp32 they are not"
        smallest = torch.finfo(case.x.dtype).smallest_normal * torch.finfo(case.x.dtype).eps
        reach = f"{half} goes from {smallest:.1g} to {torch.finfo(case.x.dtype).max:g}"
        how = f"{reach}, and eps, a square, the root or its reciprocal lies outside"
        hint = "square, add eps and divide in fp32; then cast"
        raise bed.Rejected(eps_vanishes(f"{where}, {lost}", how, hint))
    bed.reject("wrong_normalisation", f"{where}, rows are off by {off:.2g}", formula)


def _require_gradients(gradients: Any, weights: Tensor, case: RowsCase) -> None:
    if gradients is None or gradients[0] is None:
        raise bed.Rejected(common_findings.gradients_cut_off(f"for {case.what}"))
    if case.about in (_FAINT, _ONE, _NAN) or case.eps < _LEAST_WITH_GRADIENTS:
        return  # a row's gradients all but cancel there, and what is left has no digits, or are no number
    wide = case.x.double().requires_grad_()
    (right,) = torch.autograd.grad((_normalised(wide, case.eps) * weights).sum(), wide)
    tolerance = 5 * _TOLERANCES[case.x.dtype] * right.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    if not ((gradients[0].double() - right).abs() <= tolerance).all():
        seen = "wrong" if gradients[0].isfinite().all() else "not finite"
        said = f"for {case.what}, the result is right, and its gradients are {seen}"
        hint = "gradients flow through the mean square as well: leave out detach and no_grad, and see to it "
        hint += "that no NaN arises, instead of replacing it afterwards: backward meets it too"
        bed.reject("normalisation_gradients", said, hint)
