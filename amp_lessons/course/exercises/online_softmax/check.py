"""Softmax over blocks that are handed out once: its result is held against fp64, and its memory counted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from torch import Tensor

from amp_lessons.audit import rules
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.formats.dtypes import dtype_name

_HELD = 1 / 3  # of all bytes: a loop over 64 blocks holds a fifth of them at most, copies in fp64 included
_MANY = 64
_THERE = "amp_lessons.course.exercises.online_softmax.hand_out_there:call"


@dataclass(frozen=True)
class BlocksCase:
    """Scores (..., keys) and values (keys, d) in 16 bits, cut into blocks of these ``lengths``."""

    name: str
    scores: Tensor
    values: Tensor
    lengths: tuple[int, ...]
    autocast: bool = False

    @property
    def what(self) -> str:
        """What these blocks are, in which dtype, and whether autocast is on, as a message names them."""
        return f"{self.name} in {dtype_name(self.scores.dtype)}{' under autocast' if self.autocast else ''}"

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the blocks, views of what the case holds."""
        lengths = list(self.lengths)
        yield from zip(self.scores.split(lengths, -1), self.values.split(lengths), strict=True)

    def weights(self) -> Tensor:
        """Return the softmax over all scores in fp64, zeros for a row that sees no key."""
        return self.scores.double().softmax(-1).nan_to_num(0.0)

    def result(self) -> Tensor:
        """Return what all blocks come to, in fp64."""
        return self.weights() @ self.values.double()

    def errors(self, seen: Tensor, wanted: Tensor) -> Tensor:
        """Return how far off each number is, over the mean magnitude of the values that it is made of."""
        magnitude = self.weights() @ self.values.double().abs()
        return (seen.double() - wanted).abs() / magnitude.clamp(min=1e-30)

    @property
    def tolerance(self) -> float:
        """How far off a result may be: sums and exponentials in fp32, and a maximum in fp32 per block."""
        largest = float(self.scores[self.scores.isfinite()].double().abs().max())
        return 5e-5 + len(self.lengths) * largest * 2.0**-24


_Kind = tuple[str, tuple[int, ...], tuple[int, ...], float, float]
_FOUR = (16, 16, 16, 7)
_GROWING: _Kind = ("scores that grow from block to block", (16,), _FOUR, 6.0, 0.0)
# a name, rows, the lengths of the blocks, by how much scores rise per block, and their middle
_KINDS: tuple[_Kind, ...] = (
    _GROWING,
    ("scores that grow by hundreds", (16,), _FOUR, 150.0, 0.0),
    ("scores that fall from block to block", (16,), _FOUR, -150.0, 0.0),
    ("one row of scores", (), _FOUR, 2.0, 0.0),
    ("blocks of a single key", (16,), (1, 1, 1), 1.0, 0.0),
    ("a single block", (16,), (24,), 0.0, 0.0),
    ("scores around 300", (16,), _FOUR, 0.0, 300.0),
    ("scores around -300", (16,), _FOUR, 0.0, -300.0),
    ("scores of several heads", (2, 3, 5), (9, 17, 4), 3.0, 0.0),
    ("many like blocks of scores", (8,), (64,) * _MANY, 0.0, 0.0),
)


def cases(draw: torch.Generator) -> Iterator[BlocksCase]:
    """Yield what to try, from the simplest to the last corner."""
    for dtype in (torch.bfloat16, torch.float16):
        for kind in _KINDS:
            yield _drawn(kind, draw, dtype)
        apart = _drawn(("rows that lie 200 apart", (16,), _FOUR, 0.0, 0.0), draw, dtype)
        apart.scores[::2] += 200
        yield apart
        yield _masked(draw, dtype)
    for dtype in (torch.bfloat16, torch.float16):
        yield replace(_drawn(_GROWING, draw, dtype), autocast=True)
        yield replace(_masked(draw, dtype), autocast=True)


def _drawn(kind: _Kind, draw: torch.Generator, dtype: torch.dtype) -> BlocksCase:
    """Draw scores and values; the values of a column have one sign."""
    name, rows, lengths, rise, middle = kind
    steps = torch.repeat_interleave(torch.arange(len(lengths)) - len(lengths) / 2, torch.tensor(lengths))
    spread = 2.0 if len(lengths) < _MANY else 0.3  # of many keys none is to outweigh the others
    scores = torch.randn(*rows, sum(lengths), generator=draw) * spread + middle + rise * steps
    values = (torch.rand(sum(lengths), 8, generator=draw) + 0.25) * torch.tensor([1.0, -1.0] * 4)
    return BlocksCase(name, scores.to(dtype), values.to(dtype), lengths)


def _masked(draw: torch.Generator, dtype: torch.dtype) -> BlocksCase:
    """Draw scores of which rows do not see a first, a middle, a last block, or anything."""
    case = _drawn(("scores with a mask of -inf", (16,), _FOUR, 1.0, 0.0), draw, dtype)
    for row, hidden in enumerate((slice(0, 16), slice(16, 32), slice(48, 55), slice(0, 48), slice(None))):
        case.scores[row, hidden] = -torch.inf
    case.scores[5, ::2] = -torch.inf
    return case


# --- the check


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Hand out the blocks of each case once; what becomes of them is compared with fp64."""
    online_softmax = bed.function(worker, "online_softmax", [])
    for case in cases(draw):
        result, rounded_by = _result(online_softmax, case)
        off = case.errors(result, case.result()).max()
        if not off <= case.tolerance:
            _require_empty_rows(result, case)
            _reject_result(float(off), case, rounded_by)
    case = _drawn(("blocks with a NaN among the scores", (16,), _FOUR, 0.0, 0.0), draw, torch.bfloat16)
    case.scores[0, 20] = torch.nan
    if not _result(online_softmax, case)[0][0].isnan().all():
        raise bed.Rejected(rules.dtypes.nan_hidden(f"the row of that score, for {case.what},"))
    yield passed("one_pass", "every block was taken once, and let go before many others came")
    yield passed("whole_softmax", "the result is that of a softmax over all scores, whatever their order")
    yield passed("masked_blocks", "hidden blocks count nothing, and a row that sees no key gives zeros")
    said = "nothing on the way to the result is rounded to 16 bits, by autocast either"
    yield passed("state_in_fp32", said)


def _result(online_softmax: bed.LearnersFunction, case: BlocksCase) -> tuple[Tensor, str]:
    """Return what the attempt makes of a case's blocks, and what rounded to 16 bits; reject misuse."""
    what, dtype = f"for {case.what}", case.scores.dtype if case.autocast else None
    seen, _ = online_softmax.called_by(_THERE, *case.blocks(), about=what, extra=(dtype,))
    if seen["changed"]:
        hint = "scores.float() is a new tensor"
        raise bed.Rejected(common_findings.inputs_changed("scores or values of a block", hint))
    if seen["asked_again"]:
        message = "blocks were asked for once more after the last: an iterator has nothing left by then"
        bed.reject("blocks_asked_again", f"{what}, {message}", _HINTS["blocks_asked_again"])
    bed.require_not_raised(
        seen["raised"], what
    )  # of sums over nothing, perhaps: a second pass is named by now
    held, together = seen["most_held"], case.scores.nbytes + case.values.nbytes
    if len(case.lengths) >= _MANY and held > _HELD * together:
        seen = f"{what}, {held:,} bytes were held when a block was asked for, of {together:,} of all blocks"
        raise bed.Rejected(common_findings.blocks_kept(seen, _HINTS["blocks_kept"]))
    result, shape = seen["returned"], (*case.scores.shape[:-1], case.values.shape[-1])
    hint = "begin with scores.float() and values.float(), use keepdim=True, and return fp32"
    result = bed.require_tensor(result, torch.float32, shape, what, hint)
    return result.detach(), str(seen["rounded_by"])


# --- what is wrong with a result


def _require_empty_rows(result: Tensor, case: BlocksCase) -> None:
    rows, seen = result[(case.weights() == 0).all(-1)], f"for {case.what}, a row that sees no key gives"
    if rows.isnan().any():
        why = "-inf - (-inf) is NaN, and so is 0 / 0, the sum of no exponentials"
        hint = f"{_HINTS['masked_block_nan']}; and divide by no less than 1, the least sum of all other rows"
        raise bed.Rejected(rules.numbers.masked_row_nan(f"{seen} NaN", why, hint))
    if rows.any():
        seen = f"{seen} {float(rows.abs().max()):.3g}, where zeros belong"
        raise bed.Rejected(rules.numbers.masked_row_not_zero(seen, "leave -inf what it is: exp(-inf) is 0"))


def _reject_result(off: float, case: BlocksCase, rounded_by: str) -> NoReturn:
    """Say how far off a result is; and what rounded, or that numbers were lost before."""
    seen = f"off by {off:.2g} of the values' magnitude" if math.isfinite(off) else "not finite"
    if rounded_by:
        _reject("state_in_half", case, f"{seen}, and {rounded_by} rounded to 16 bits on the way to it")
    if math.isfinite(off):
        _reject("wrong_softmax", case, f"{seen}, and {case.tolerance:.1g} is allowed")
    if not case.scores.isfinite().all():
        _reject("masked_block_nan", case, f"{seen}, and some keys are hidden")
    _reject("exponents_overflow", case, f"{seen}: an exponential overflowed, or all of them became 0")


def _reject(code: str, case: BlocksCase, seen: str) -> NoReturn:
    bed.reject(code, f"for {case.what}, the result is {seen}", _HINTS[code])


_HINTS = {
    "blocks_asked_again": "keep the largest score so far, and rescale sums by exp(before - largest)",
    "blocks_kept": "keep three things: the largest score, the sum of exponentials, the weighted values",
    "masked_block_nan": "begin with fp32's lowest finite number as the largest: -inf - (-inf) is NaN",
    "state_in_half": "keep all in fp32, the weights of a block too: scores.float(), values.float(), with "
    "autocast, which casts what a product is given, switched off for the scores' device",
    "exponents_overflow": "subtract the largest score so far: then no exponential is above 1, and one is 1",
    "wrong_softmax": "all blocks share one maximum, which begins below every score; whenever it grows, sum "
    "and weighted values are both multiplied by exp(before - largest), and they are divided once, at the end",
}
