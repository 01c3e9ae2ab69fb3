"""Attention whose mask does not fit into fp16: what becomes of a query that may see no key?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.audit.rules import dtypes, numbers
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.patients.products import products_elsewhere
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_THERE = "amp_lessons.course.exercises.bed_there:call_with_gradients"
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 1e-4}
_FAINT, _NAN = "two allowed keys far below the others", "a query of NaN"


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Attend with masks of all kinds, and follow the gradients back."""
    attend = bed.function(worker, "attend_fatal_batch", None, None, None, None)
    for case in _cases(draw):
        result, gradients = _result(attend, case)
        if case.about != _NAN:
            _require_empty_rows(result, case)
            _require_values(result, case)
            _require_gradients(gradients, case)
        elif result[0, 0, 0].isfinite().any():
            raise bed.Rejected(dtypes.nan_hidden(f"what depends on it ({case.what})"))
    yield passed("mask", "a key that is not allowed has no weight, however faint the allowed ones are")
    yield passed("empty_rows", "a query without a key gives zeros, and good gradients")
    said = "the matrix products ran in the dtype of the inputs, and NaN that goes in comes out"
    yield passed("small", said)


# --- queries, keys and values to attend with, under masks from plain to empty


@dataclass(frozen=True)
class MaskCase:
    """Queries, keys and values of shape (batch, heads, rows, width), and which keys a query may see."""

    about: str
    given: tuple[Tensor, Tensor, Tensor]
    allowed: Tensor

    @property
    def what(self) -> str:
        """The mask and the dtype of this case, as a message names them."""
        return f"for {dtype_name(self.given[0].dtype)}, {self.about}"

    def near(self, seen: Tensor, right: Tensor, factor: float = 1.0) -> bool:
        """Whether a result is right to what the card promises, or to this many times that."""
        tolerance = factor * _TOLERANCES[self.given[0].dtype] * max(1.0, float(right.abs().max()))
        return bool(((seen.double() - right).abs() <= tolerance).all())


def _cases(draw: torch.Generator) -> Iterator[MaskCase]:
    """Yield what to try, from what the broken code can do to the last corner."""
    places = torch.arange(6)
    behind_padding = (places <= places[:, None]) & (places >= 2)  # causal; two queries see nothing
    masks = {
        "every key allowed": _lengths(6, 6),
        "one text shorter than the others": _lengths(6, 4, 6),
        "one text empty": _lengths(6, 0, 3),
        "nothing but empty texts": _lengths(0, 0),
        "some queries without a key": behind_padding[None, None],
        "a single key": torch.tensor([True, False])[:, None, None, None],
        _NAN: _lengths(6, 0, 3),
    }
    for dtype in _TOLERANCES:
        for about, allowed in masks.items():
            yield _drawn(about, allowed, dtype, draw)
        # hidden keys have scores of 0, allowed ones as far from that as fp16 goes; in wider dtypes far beyond
        size = 250.0 if dtype == torch.float16 else 1e5
        for about, some, query, keys in (
            ("an empty text whose scores are about -45", False, [6.7, 6.7], [-6.7] * 4),
            (_FAINT, True, [size, size], [0, -size, -0.75 * size, 0]),
            ("two allowed keys far above the others", True, [size, size], [0, size, 0.75 * size, 0]),
            ("one query with far larger scores than another", True, [size, 2 / size], [0, size, 0, 0]),
        ):
            queries = torch.tensor(query, dtype=dtype)[:, None].expand(1, 3, 2, 1).clone()
            alike = torch.tensor(keys, dtype=dtype)[:, None].expand(1, 3, 4, 1).clone()
            values = torch.randn(alike.shape, generator=draw).to(dtype)
            allowed = torch.tensor([False, some, some, False]).expand(1, 1, 2, 4)
            yield MaskCase(about, (queries, alike, values), allowed)
    yield _drawn("4,096 keys", _lengths(4096, 1), torch.float16, draw)


def _lengths(*lengths: int) -> Tensor:
    return (torch.arange(max(*lengths, 6)) < torch.tensor(lengths)[:, None])[:, None, None]


def _drawn(about: str, allowed: Tensor, dtype: torch.dtype, draw: torch.Generator) -> MaskCase:
    batch, _, _, keys = allowed.shape
    tensors = torch.randn(3, batch, 3, keys, 8, generator=draw).to(dtype)
    queries = tensors[0, :, :, :6].clone()
    if about == _NAN:
        queries[0, 0, 0] = torch.nan
    return MaskCase(about, (queries, tensors[1], tensors[2]), allowed)


def _attended(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """Attend; a query without a key gives zeros."""
    scores = queries @ keys.mT / keys.shape[-1] ** 0.5
    some = allowed.any(-1, keepdim=True)
    return scores.masked_fill(~allowed & some, -torch.inf).softmax(-1) * allowed @ values


# --- what must hold


def _weights(case: MaskCase) -> Tensor:
    """Return what the numbers of a result are multiplied with before their sum goes backward."""
    return torch.linspace(-1, 1, case.given[0].numel()).reshape(case.given[0].shape)


def _result(attend: bed.LearnersFunction, case: MaskCase) -> tuple[Tensor, Any]:
    """Return what comes of a case, and the gradients of its weighted sum, None where it has no graph."""
    given = *case.given, case.allowed
    inputs = [each.clone() for each in given]
    told, _ = attend.called_by(_THERE, *inputs, about=case.what, extra=(_weights(case),))
    bed.require_unchanged(inputs, given, "queries, keys, values or the mask", "compute with new tensors")
    result, queries = told["returned"], case.given[0]
    hint = "return weights @ values, with weights in the dtype of values"
    result = bed.require_tensor(result, queries.dtype, queries.shape, case.what, hint)
    if mistake := products_elsewhere(told["products"], queries.dtype, f"{case.what}, matrix products"):
        raise bed.Rejected(mistake)
    return result, told["gradients"]


def _require_empty_rows(result: Tensor, case: MaskCase) -> None:
    rows = result[~case.allowed.any(-1).expand(result.shape[:-1])]
    if rows.isnan().any():
        seen = f"{case.what}, a query that may see no key gives NaN"
        how = "softmax of nothing but -inf, as -1e9 is in fp16, subtracts -inf from -inf, which is NaN"
        raise bed.Rejected(
            numbers.masked_row_nan(seen, f"{how}; so is 0 / 0, of weights that add up to zero")
        )
    if rows.any():
        seen = f"{case.what}, a query that may see no key gives {float(rows.abs().max()):.2g}, not zeros"
        hint = "take the weight of hidden keys away after softmax as well, whatever was put in before it"
        raise bed.Rejected(numbers.masked_row_not_zero(seen, hint))


def _require_values(result: Tensor, case: MaskCase) -> None:
    queries, keys, values = (each.double() for each in case.given)
    right = _attended(queries, keys, values, case.allowed)
    if case.near(result, right):
        return
    finite = bool(result.isfinite().all())
    off = f"off by {float((result.double() - right).abs().max()):.2g}" if finite else "not finite"
    said = f"{case.what}, rows that may see keys are {off}"
    if finite and case.about == _FAINT:
        hint = "what softmax sees for hidden keys has to be below all scores, as torch.finfo(dtype).min of "
        hint += (
            "their dtype is, and an exponential needs the largest score that a row may see subtracted first"
        )
        bed.reject("faint_keys_wrong", said, hint)
    hint = "put the lowest number of the scores' dtype in the place of hidden scores, and leave the others "
    hint += "as they are: what is added or multiplied may overflow, what is clamped makes scores alike"
    bed.reject("wrong_attention", said, hint)


def _require_gradients(found: Any, case: MaskCase) -> None:
    queries, keys, values = wide = [each.double().requires_grad_() for each in case.given]
    right = torch.autograd.grad((_attended(queries, keys, values, case.allowed) * _weights(case)).sum(), wide)
    names = "queries", "keys", "values"
    cut = [name for name, each in zip(names, found or (), strict=False) if each is None]
    if found is None or cut:
        raise bed.Rejected(common_findings.gradients_cut_off(case.what, " and ".join(cut)))
    if not all(case.near(seen, wanted, 5.0) for seen, wanted in zip(found, right, strict=True)):
        finite = all(gradient.isfinite().all() for gradient in found)
        said = (
            f"{case.what}, the result is right, and its gradients are {'wrong' if finite else 'not finite'}"
        )
        hint = (
            "leave out detach, .data and no_grad, and see to it that no NaN arises, instead of replacing it "
        )
        hint += "afterwards: backward meets it, and zero times NaN is NaN"
        bed.reject("attention_gradients", said, hint)
