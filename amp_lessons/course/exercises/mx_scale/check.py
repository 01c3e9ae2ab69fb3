"""The exponent that a block shares, held against all exponents there are, tried one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.course.exercises.small_formats import mistakes as of_scales
from amp_lessons.course.exercises.small_formats.watching_there import too_large_from
from amp_lessons.formats import FORMATS

ELEMENT = FORMATS["fp8_e4m3"]
EXPONENTS = range(-127, 128)  # those that E8M0 has
_POWERS = range(-126, 120)  # of two, times 448: a logarithm that is rounded up is wrong at some of them
NAN = 128  # 128 + 127 is 255, the code of its NaN


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the exponents of many blocks, the plainest first; the first wrong one decides."""
    mx_scale = bed.function(worker, "mx_scale", torch.ones(32))
    notes: dict[str, Finding] = {}
    for name, block in cases(draw):
        given = block.clone()
        returned = mx_scale(given, about=f"for {name}")
        bed.require_unchanged([given], [block], "the numbers of the block", "block.abs() makes a new tensor")
        exponent = _require_right(returned, block, name)
        for remark in (*remark_on_type(returned, int), *_remarks(block, exponent, name)):
            notes.setdefault(remark.code, remark)
    edges = [(f"a block of 448 times 2 to the power of {k}", torch.tensor([448.0 * 2.0**k])) for k in _POWERS]
    answers = mx_scale.each([[block] for _, block in edges], lambda at: f"for {edges[at][0]}")
    for (name, block), returned in zip(edges, answers, strict=True):
        _require_right(returned, block, name)
    yield passed("nothing_saturates", "no block is cut, not even where the floor would cut it")
    yield passed("smallest_exponent", "and at the next smaller exponent one would be")
    yield passed("codes_of_e8m0", "zeros, the smallest numbers, inf and NaN get exponents that E8M0 has")
    yield from notes.values()


def _require_right(returned: Any, block: Tensor, name: str) -> int:
    """Return the exponent that was returned for a block; reject what is none, or a wrong one."""
    exponent = number_in(returned)
    if exponent is None or not math.isfinite(exponent) or exponent != int(exponent):
        bed.reject_type("an int was", returned, "return k, not 2ᵏ, as an int", f"for {name}")
    bed.require_none(_mistakes(block, int(exponent), f"for {name}, with the exponent {int(exponent)}"))
    return int(exponent)


# --- blocks


def cases(draw: torch.Generator) -> Iterator[tuple[str, Tensor]]:
    """Draw blocks and say which they are, the plainest first."""
    # On the first all agree but the ceiling; int() saturates at 700, the nearest at 600, the floor at 500
    tops = [0.00335, 700.0, 600.0, 500.0, 300.0, 100.0, 7.5, 0.013]
    tops += [-3.0, 480.0, -0.1, 1.9, 2e-4, 3.1e5, 31.0, 1.4e-9]
    for top, shift in zip(tops, torch.randint(10, (len(tops),), generator=draw).tolist(), strict=True):
        top *= 2.0**shift  # changes nothing but the exponent
        yield f"a block up to {abs(top):g}{', the largest negative' * (top < 0)}", _block(draw, top)
    for top in (448.0, 448.0 * 2.0**-20, 448.0 * 2.0**40, 512.0, 2.0**-9, 448.0 + 2.0**-15, 460.0, 466.0):
        yield f"a block up to {top!r}", _block(draw, top)
    yield "a block of bf16", _block(draw, 0.37).bfloat16()
    yield "a block of fp16", _block(draw, 52000.0).half()
    yield "a block of fp16 up to 3e-5", _block(draw, 3e-5).half()
    yield "a block of bf16 up to 470", _block(draw, 470.0).bfloat16()
    yield "a block of zeros", torch.zeros(32)
    yield "a shorter block, the last of its row", _block(draw, 0.6, 5)
    yield "a block of one number", torch.tensor([-19.0])
    yield "a block up to 3e38", _block(draw, 3e38)
    yield "a block up to 1e-37", _block(draw, 1e-37)
    yield "a block of subnormal numbers of fp32", _block(draw, 1e-40)
    for value in (math.inf, -math.inf, math.nan):
        yield f"a block with {value}", _block(draw, value)
    yield "a block of bf16 with NaN", _block(draw, math.nan).bfloat16()


def _block(draw: torch.Generator, top: float, length: int = 32) -> Tensor:
    """Draw numbers of very different magnitudes, with ``top`` somewhere: the rest is half of it at most."""
    block = torch.randn(length, generator=draw) * torch.rand(length, generator=draw).mul(-5.0).exp()
    block = block / block.abs().max() * (abs(top) if math.isfinite(top) else 1.0) * 0.5
    block[int(torch.randint(length, (1,), generator=draw))] = top
    return block


# --- exponents


def _amax(block: Tensor) -> float:
    return float(block.double().abs().max())


def _right(block: Tensor) -> Sequence[int]:
    """Return the smallest exponent at which no magnitude is above the largest number, and others that do.

    For zeros any does, elsewhere one less where that rounds to the largest number.
    """
    amax = _amax(block)
    if amax == 0 or not math.isfinite(amax):
        return (NAN,) if amax else EXPONENTS
    smallest = next(k for k in EXPONENTS if amax * 2.0**-k <= ELEMENT.max)
    rounds = smallest > EXPONENTS[0] and amax * 2.0 ** (1 - smallest) <= too_large_from(ELEMENT)
    return (smallest, smallest - 1) if rounds else (smallest,)


def _remarks(block: Tensor, exponent: int, name: str) -> Iterator[Finding]:
    if _amax(block) and exponent < _right(block)[0]:
        said = f"for {name} the largest magnitude lands at {_amax(block) * 2.0**-exponent:.8g}, above 448, "
        said += "and is rounded to it: within half a step, so nothing is lost"
        hint = "an exponent more keeps it at 448 or below; is a logarithm rounded next to a whole number?"
        yield note("rounds_to_the_largest", said, hint)


def _mistakes(block: Tensor, exponent: int, what: str) -> Iterator[Finding]:
    """Yield what is wrong with an answer, the root cause first; nothing where it is right."""
    amax = _amax(block)
    if exponent in _right(block):
        return
    if not math.isfinite(amax):
        effect = f"only {NAN}, E8M0's NaN, lets the block be seen for what it is"
        hint = f"return {NAN} where any number is inf or NaN; Python's max() may pass over a NaN"
        yield of_scales.inf_hidden(what, effect, hint)
    if amax == 0:
        yield of_scales.zero_amax(what, f"this is no exponent from {EXPONENTS[0]} to {EXPONENTS[-1]}")
    lands_at = amax * 2.0**-exponent if abs(exponent) < 500 else math.nan
    if exponent not in EXPONENTS:
        said = f"{what}: E8M0 has the exponents from {EXPONENTS[0]} to {EXPONENTS[-1]}"
        hint = f"max(k, {EXPONENTS[0]}): so small a block loses some numbers, and there is no other scale"
        yield failed("outside_e8m0", said, hint)
    smallest = f"{_right(block)[0]} is the smallest exponent at which nothing is above {ELEMENT.max:g}"
    if (misplaced := of_scales.misplaced(amax, 2.0**exponent, ELEMENT, what)) is not None:
        hint = "the first power of two not below amax / 448, by a quotient in fp32, down to k = -127"
        yield replace(misplaced, message=f"{misplaced.message}; {smallest}", hint=hint)
    hint = "where amax is 448 times a power of two, floor(log2(amax / 448)) + 1 is one too many, and "
    hint += "a logarithm may have been rounded up: try k - 1"
    yield failed("one_too_many", f"{what}, the largest magnitude lands at {lands_at:.4g}: {smallest}", hint)
