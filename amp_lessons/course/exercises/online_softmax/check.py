"""Softmax over blocks that are handed out once: its result is held against fp64, and its memory counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import Rejected, reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function, require_not_raised
from amp_lessons.course.exercises.online_softmax.cases import BlocksCase, cases, poisoned
from amp_lessons.course.exercises.report import common_findings

_HELD = 1 / 3  # of all bytes: a loop over 64 blocks holds a fifth of them at most, copies in fp64 included
_MANY = 64
_THERE = "amp_lessons.course.exercises.online_softmax.hand_out_there:call"


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Hand out the blocks of each case once; what becomes of them is compared with fp64."""
    online_softmax = function(worker, "online_softmax", [])
    for case in cases(draw):
        result, rounded_by = _result(online_softmax, case)
        _require_right(result, case, rounded_by, online_softmax)
    _require_visible(online_softmax, poisoned(draw))
    yield passed("one_pass", "every block was taken once, and let go before many others came")
    yield passed("whole_softmax", "the result is that of a softmax over all scores, whatever their order")
    yield passed("masked_blocks", "hidden blocks count nothing, and a row that sees no key gives zeros")
    yield passed(
        "state_in_fp32", "nothing between scores and result is rounded to 16 bits, by autocast either"
    )


def _result(online_softmax: LearnersFunction, case: BlocksCase) -> tuple[Tensor, str]:
    """Return what the attempt makes of a case's blocks, and what rounded to 16 bits; reject misuse."""
    what = f"for {case.what}"
    dtype = case.scores.dtype if case.autocast else None
    seen, _ = online_softmax.called_by(_THERE, *case.blocks(), about=what, extra=(dtype,))
    if seen["changed"]:
        raise Rejected(
            common_findings.inputs_changed("scores or values of a block", "scores.float() is a new tensor")
        )
    if seen["asked_again"]:
        _reject_second_pass(what)
    require_not_raised(seen["raised"], what)  # of sums over nothing, perhaps: a second pass is named by now
    if len(case.lengths) >= _MANY and seen["most_held"] > _HELD * case.nbytes:
        _reject_kept(seen["most_held"], case)
    return _require_tensor(seen["returned"], case), str(seen["rounded_by"])


def _reject_second_pass(what: str) -> NoReturn:
    reject(
        "blocks_asked_again",
        f"{what}, the blocks were asked for once more after the last: an iterator has nothing left by then, "
        "and a kernel would read all keys from memory twice",
        "keep the largest score so far, and multiply what was summed by exp(before - largest) when it grows",
    )


def _reject_kept(most_held: int, case: BlocksCase) -> NoReturn:
    raise Rejected(
        common_findings.blocks_kept(
            f"for {case.what}, {most_held:,} bytes were in memory when a block was asked for, and all "
            f"blocks together have {case.nbytes:,}: what was to be avoided is a row as long as the text",
            "keep three things between blocks: the largest score, the sum of exponentials, the weighted "
            "values",
        )
    )


def _require_tensor(result: Any, case: BlocksCase) -> Tensor:
    shape = (*case.scores.shape[:-1], case.values.shape[-1])
    if not isinstance(result, Tensor) or result.dtype != torch.float32 or result.shape != shape:
        raise Rejected(
            common_findings.wrong_return_type(
                f"an fp32 tensor of shape {shape} was",
                f"{described(result)}, for {case.what}",
                "scores.float() begins it, and amax(-1, keepdim=True) keeps the shapes together; who "
                "called may round the result, once",
            )
        )
    return result.detach()


# --- what is wrong with a result, from what is not finite to what was rounded


def _require_right(
    result: Tensor, case: BlocksCase, rounded_by: str, online_softmax: LearnersFunction
) -> None:
    if not _is_near(result, case.result(), case):
        _require_empty_rows(result, case)
        if case.autocast and _is_right_without_autocast(online_softmax, case):
            _reject_autocast(case, rounded_by)
        if not result.isfinite().all():
            _reject_not_finite(result, case, rounded_by)
        _require_no_other_formula(result, case)
        _reject_inexact(result, case, rounded_by)


def _is_near(seen: Tensor, wanted: Tensor, case: BlocksCase) -> bool:
    return bool((case.errors(seen, wanted) <= case.tolerance).all())  # NaN is not


def _require_empty_rows(result: Tensor, case: BlocksCase) -> None:
    rows = result[case.empty.squeeze(-1)]
    seen = f"for {case.what}, a row that sees no key"
    if rows.isnan().any():
        raise Rejected(
            catalogue.precision.masked_row_nan(
                f"{seen} gives NaN",
                "-inf - (-inf) is NaN, and so is 0 / 0, the sum of no exponentials",
                "begin with the lowest finite number of fp32 as the largest score, and divide by 1 at least",
            )
        )
    if rows.any():
        raise Rejected(
            catalogue.precision.masked_row_not_zero(
                f"{seen} gives other numbers than zeros",
                "leave -inf what it is, and subtract a number that is finite: exp(-inf) is 0",
            )
        )


def _is_right_without_autocast(online_softmax: LearnersFunction, case: BlocksCase) -> bool:
    result, _ = _result(online_softmax, replace(case, autocast=False))
    return _is_near(result, case.result(), case)


def _reject_autocast(case: BlocksCase, rounded_by: str) -> NoReturn:
    reject(
        "product_cast_back",
        f"for {case.what}, the result is off, and right without autocast: {rounded_by} gave 16 bits, "
        "for autocast casts what a matrix product is given, whatever you had cast before",
        "switch autocast off around the computation, for the device that the scores are on",
    )


def _reject_not_finite(result: Tensor, case: BlocksCase, rounded_by: str) -> NoReturn:
    if case.scores.isinf().any():
        reject(
            "masked_block_nan",
            f"for {case.what}, rows that see keys in other blocks are not finite: as long as a row has seen "
            "none, its largest score is -inf, and -inf - (-inf) is NaN",
            "begin with the lowest finite number of fp32 as the largest score",
        )
    if rounded_by:
        _reject_state_in_half(case, rounded_by, "not finite")
    reject(
        "exponents_overflow",
        f"for {case.what}, the result is not finite: an exponential overflowed, or all of them became 0",
        "subtract the largest score of all blocks so far: then no exponential is above 1, and one is 1",
    )


def _require_no_other_formula(result: Tensor, case: BlocksCase) -> None:
    """Reject a result that a known mistake explains, to the tolerance of the right one."""
    for explain in _EXPLAINED:
        code, wanted, seen, hint = explain(case)
        if _is_near(result, wanted, case):
            reject(code, f"for {case.what}, {seen}", hint)


def _not_divided(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    scores = case.scores.double()
    total = (scores - scores.amax(-1, keepdim=True)).exp().sum(-1, keepdim=True)
    return (
        "sum_not_divided",
        case.result() * total,
        "the weighted values were returned as they were summed: the weights of a softmax add up to 1",
        "divide by the sum of exponentials, once, at the end",
    )


def _not_rescaled(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    return (
        "not_rescaled",
        _summed(case, rescale_total=False, rescale_weighted=False),
        "each block counts by the largest score that was known when it came: what was summed before the "
        "maximum grew still belongs to the old one",
        "multiply sum and weighted values by exp(before - largest) whenever the maximum grows",
    )


def _only_sum_rescaled(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    return (
        "values_not_rescaled",
        _summed(case, rescale_total=True, rescale_weighted=False),
        "the sum of exponentials was rescaled when the maximum grew, and the weighted values were not",
        "both belong to the maximum that they were computed with: both are multiplied by the same factor",
    )


def _only_values_rescaled(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    return (
        "sum_not_rescaled",
        _summed(case, rescale_total=False, rescale_weighted=True),
        "the weighted values were rescaled when the maximum grew, and the sum of exponentials was not",
        "both belong to the maximum that they were computed with: both are multiplied by the same factor",
    )


def _summed(case: BlocksCase, rescale_total: bool, rescale_weighted: bool) -> Tensor:
    """Add up a case's blocks in fp64 without one or both of the factors."""
    largest = total = weighted = torch.zeros((), dtype=torch.float64)
    largest = largest + torch.finfo(torch.float64).min
    for scores, values in case.blocks():
        before, largest = largest, torch.maximum(largest, scores.double().amax(-1, keepdim=True))
        factor, weights = (before - largest).exp(), (scores.double() - largest).exp()
        total = total * (factor if rescale_total else 1) + weights.sum(-1, keepdim=True)
        weighted = weighted * (factor if rescale_weighted else 1) + weights @ values.double()
    return weighted / total


def _averaged(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    each = [scores.double().softmax(-1) @ values.double() for scores, values in case.blocks()]
    return (
        "blocks_averaged",
        torch.stack(each).mean(0),
        "the result is the mean of a softmax per block: a block of low scores counts as much as any",
        "blocks share one sum: exponentials of all of them, relative to one maximum",
    )


def _last_alone(case: BlocksCase) -> tuple[str, Tensor, str, str]:
    *_, (scores, values) = case.blocks()
    return (
        "last_block_only",
        scores.double().softmax(-1) @ values.double(),
        "the result is the softmax of the last block alone",
        "add to what was summed before: total * rescale + the block's sum",
    )


_EXPLAINED = (_not_divided, _not_rescaled, _only_sum_rescaled, _only_values_rescaled, _averaged, _last_alone)


def _reject_inexact(result: Tensor, case: BlocksCase, rounded_by: str) -> NoReturn:
    off = float(case.errors(result, case.result()).max())
    if rounded_by:
        _reject_state_in_half(case, rounded_by, f"off by up to {off:.2g} of the values' magnitude")
    reject(
        "wrong_softmax",
        f"for {case.what}, the result is off by up to {off:.2g} of the values' magnitude, and neither 16 "
        "bits nor a mistake that is known here explains it",
        "write down for one row and two blocks of one key each what sum and weighted values should be",
    )


def _reject_state_in_half(case: BlocksCase, rounded_by: str, how: str) -> NoReturn:
    reject(
        "state_in_half",
        f"for {case.what}, {rounded_by} rounded to 16 bits on the way to the result, which is {how}; "
        f"{case.tolerance:.1g} of it is allowed, as much as fp32 may cost",
        "begin with scores.float() and values.float(); whoever called may round the result",
    )


def _require_visible(online_softmax: LearnersFunction, case: BlocksCase) -> None:
    result, _ = _result(online_softmax, case)
    if not result[0].isnan().all():
        raise Rejected(catalogue.precision.nan_hidden(f"the row of that score, for {case.what},"))
