"""Attention whose mask does not fit into fp16: what becomes of a query that may see no key?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.catalogue.precision import nan_hidden
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 1e-4}


_THERE = "amp_lessons.course.exercises.heal_fatal_batch.attention_there:attend"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Attend with masks of all kinds, and follow the gradients back."""
    attend = function(worker, "attend_fatal_batch", None, None, None, None)
    for case in cases():
        weights = torch.linspace(-1, 1, case.queries.numel()).reshape(case.queries.shape)
        result, gradients = _result(attend, case, weights)
        _require_empty_rows(result, case)
        _require_values(result, case)
        _require_gradients(gradients, case, weights)
    _require_nan(attend)
    yield passed("mask", "a key that is not allowed has no weight, however faint the allowed ones are")
    yield passed("empty_rows", "a query without a key gives zeros, and good gradients")
    yield passed(
        "small", "the matrix products ran in the dtype of the inputs, and NaN that goes in comes out"
    )


def _result(attend: LearnersFunction, case: MaskCase, weights: Tensor) -> tuple[Tensor, Any]:
    """Return what comes of a case, and the gradients of its weighted sum, None where it has no graph."""
    inputs = case.inputs()
    told, _ = attend.called_by(_THERE, *inputs, about=f"for {case.what}", extra=(weights,))
    result, originals = told["returned"], case.inputs()
    if not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(inputs, originals, strict=True)):
        reject(
            "inputs_changed",
            "queries, keys, values or the mask were changed in place",
            "compute with new tensors",
        )
    if not isinstance(result, Tensor) or (result.dtype, result.shape) != (case.dtype, case.queries.shape):
        reject(
            "wrong_return_type",
            f"{describe(case.queries)} was expected for {case.what}, not {described(result)}",
            "return weights @ values, with weights in the dtype of values",
        )
    mistake = products_elsewhere(told["products"], case.dtype, f"for {case.what}, matrix products")
    if mistake is not None:
        raise Rejected(mistake)
    return result, told["gradients"]


def _require_empty_rows(result: Tensor, case: MaskCase) -> None:
    rows = result[case.empty]
    if rows.isnan().any():
        nan_of = f"for {case.what}, a query that may see no key gives NaN"
        raise Rejected(catalogue.precision.masked_row_nan(nan_of, _NO_WEIGHTS))
    if rows.any():
        raise Rejected(
            catalogue.precision.masked_row_not_zero(
                f"for {case.what}, a query that may see no key gives numbers other than zero",
                "take the weight of hidden keys away after softmax as well, whatever was put in before it",
            )
        )


_NO_WEIGHTS = (
    "its weights add up to zero, and zero is divided by zero: softmax does so with nothing but -inf, which "
    "is what -1e9 becomes in fp16"
)


def _require_values(result: Tensor, case: MaskCase) -> None:
    right = _in_fp64(case, case.allowed)
    if _near(result, right, case):
        return
    if not result.isfinite().all():
        reject(
            "mask_overflows",
            f"for {case.what}, rows that may see keys are not finite: inf or NaN was made of their scores",
            "put a number in the place of hidden scores; what is added overflows, and inf times zero is NaN",
        )
    if case.about in (_FAINT, _BRIGHT) and _near(result, _all_alike(case), case):
        reject(
            "scores_flattened",
            f"for {case.what}, allowed keys of different scores have equal weights: scores so large were "
            "clamped, or rounded, to the same number",
            "leave the scores of allowed keys as they are; only hidden ones need another number",
        )
    if case.about == _FAINT or _near(result, _in_fp64(case, torch.ones_like(case.allowed)), case):
        reject(
            "mask_leaks",
            f"for {case.what}, keys that are not allowed have a say: softmax saw their scores, or the number "
            "that was put in their place, and it was not below those of the allowed ones",
            "take the lowest number of the scores' dtype, torch.finfo(dtype).min, or -inf with care",
        )
    reject(
        "wrong_attention",
        f"for {case.what}, the result is off by {float((result.double() - right).abs().max()):.2g}",
        "keep the scores, softmax and products of the code you were given: only the mask is wrong",
    )


def _in_fp64(case: MaskCase, allowed: Tensor) -> Tensor:
    return case.right(case.queries.double(), case.keys.double(), case.values.double(), allowed)


def _all_alike(case: MaskCase) -> Tensor:
    """Return what comes of equal weights for all allowed keys."""
    return case.right(case.queries.double() * 0, case.keys.double(), case.values.double(), case.allowed)


def _require_gradients(found: Any, case: MaskCase, weights: Tensor) -> None:
    inputs = case.queries, case.keys, case.values
    queries, keys, values = wide = [each.double().requires_grad_() for each in inputs]
    if found is None:
        raise Rejected(common_findings.gradients_cut_off(f"for {case.what}"))
    unreached = [
        name for name, each in zip(("queries", "keys", "values"), found, strict=True) if each is None
    ]
    if unreached:
        raise Rejected(common_findings.gradients_cut_off(f"for {case.what}", " and ".join(unreached)))
    right = torch.autograd.grad((case.right(queries, keys, values, case.allowed) * weights).sum(), wide)
    if not all(gradient.isfinite().all() for gradient in found):
        reject(
            "masked_row_gradient",
            f"for {case.what}, the result is right, and gradients are not finite: backward meets an inf or "
            "NaN that does not show, in what a mask or torch.where leaves out or behind a division by almost "
            "zero, and zero times that is NaN",
            "see to it that no NaN arises, instead of replacing it afterwards",
        )
    if not all(_near(seen, wanted, case, 5.0) for seen, wanted in zip(found, right, strict=True)):
        reject(
            "attention_gradients",
            f"for {case.what}, the result is right, and its gradients are not",
            "leave out detach, .data and no_grad",
        )


def _near(seen: Tensor, right: Tensor, case: MaskCase, factor: float = 1.0) -> bool:
    tolerance = factor * _TOLERANCES[case.dtype] * max(1.0, float(right.abs().max()))
    return bool(((seen.double() - right).abs() <= tolerance).all())


def _require_nan(attend: LearnersFunction) -> None:
    """Reject a mend by which no NaN is ever seen again: one query is NaN, and has keys to see."""
    for case in cases():
        if case.about == "one text empty":
            queries = case.queries.clone()
            queries[0, 0, 0] = torch.nan
            poisoned = MaskCase(case.about, queries, case.keys, case.values, case.allowed)
            result, _ = _result(attend, poisoned, torch.ones_like(queries))
            if result[0, 0, 0].isfinite().any():
                raise Rejected(nan_hidden(f"what depends on it ({case.what})"))


# --- queries, keys and values to attend with, under masks from plain to empty, and what is right

_WIDTH = 8
_FAINT, _BRIGHT = "two allowed keys far below the others", "two allowed keys far above the others"


@dataclass(frozen=True)
class MaskCase:
    """Tensors of shape (batch, heads, rows, width), and which keys a query may see; ``about`` says which."""

    about: str
    queries: Tensor
    keys: Tensor
    values: Tensor
    allowed: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what goes in, and of what is to come out."""
        return self.queries.dtype

    @property
    def what(self) -> str:
        """The mask and the dtype of this case, as a message names them."""
        return f"{dtype_name(self.dtype)}, {self.about}"

    @property
    def empty(self) -> Tensor:
        """Which queries, of shape (batch, heads, queries), may see no key at all."""
        return ~self.allowed.any(-1).expand(self.queries.shape[:-1])

    def inputs(self) -> list[Tensor]:
        """Copy queries, keys, values and the mask."""
        return [each.clone() for each in (self.queries, self.keys, self.values, self.allowed)]

    @staticmethod
    def right(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """Attend in the dtype of the inputs; a query without a key gives zeros."""
        scores = queries @ keys.mT / keys.shape[-1] ** 0.5
        some = allowed.any(-1, keepdim=True)
        return scores.masked_fill(~allowed & some, -torch.inf).softmax(-1) * allowed @ values


def cases() -> Iterator[MaskCase]:
    """Yield what to try, from what the broken code can do to the last corner."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        yield _case("every key allowed", dtype, torch.ones(2, 1, 5, 6, dtype=torch.bool))
        yield _case("one text shorter than the others", dtype, _lengths(6, 4, 6))
        yield _case("one text empty", dtype, _lengths(6, 0, 3))
        yield _case("nothing but empty texts", dtype, _lengths(0, 0))
        yield _case("some queries without a key", dtype, _causal_behind_padding(6))
        yield _case("a single key", dtype, torch.tensor([True, False])[:, None, None, None])
        yield _alike("an empty text whose scores are about -45", dtype, 4.0)
        yield _far_away(_FAINT, dtype, -1.0)
        yield _far_away(_BRIGHT, dtype, 1.0)
    yield _case("4,096 keys", torch.float16, _lengths(4096, 1), queries=2)


def _lengths(*lengths: int) -> Tensor:
    places = torch.arange(max(*lengths, 6))
    return torch.stack([places < length for length in lengths])[:, None, None]


def _causal_behind_padding(count: int) -> Tensor:
    """Return the mask of a text whose first two places are padding: its first two queries see nothing."""
    places = torch.arange(count)
    return ((places[None] <= places[:, None]) & (places >= 2))[None, None]


def _case(about: str, dtype: torch.dtype, allowed: Tensor, queries: int = 0, width: int = _WIDTH) -> MaskCase:
    draw = torch.Generator().manual_seed(len(about))
    batch, keys = allowed.shape[0], allowed.shape[-1]
    rows = allowed.shape[-2] if allowed.shape[-2] > 1 else queries or keys

    def drawn(count: int) -> Tensor:
        return torch.randn(batch, 3, count, width, generator=draw).to(dtype)

    return MaskCase(about, drawn(rows), drawn(keys), drawn(keys), allowed)


def _alike(about: str, dtype: torch.dtype, size: float) -> MaskCase:
    """Return a case in which no key is allowed, and all have scores of about -2.8 times size²."""
    case = _case(about, dtype, torch.zeros(1, 1, 2, 4, dtype=torch.bool))
    return replace(case, queries=torch.full_like(case.queries, size), keys=torch.full_like(case.keys, -size))


def _far_away(about: str, dtype: torch.dtype, sign: float) -> MaskCase:
    """Return a case in which hidden keys have scores of 0, and two allowed ones scores as far away as can be.

    That is about as far as fp16 goes; in wider dtypes it is far beyond what fp16, or -1e9, would be below.
    """
    size = 250.0 if dtype == torch.float16 else 1e5
    case = _case(about, dtype, torch.tensor([False, True, True, False]).expand(1, 1, 2, 4), width=1)
    keys = torch.tensor([0.0, size, 0.75 * size, 0.0])[:, None].to(case.keys) * sign
    return replace(case, queries=torch.full_like(case.queries, size), keys=keys.expand_as(case.keys).clone())
