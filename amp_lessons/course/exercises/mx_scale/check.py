"""The exponent that a block shares, held against all exponents there are, tried one by one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit import catalogue
from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.course.exercises.attempt import Rejected, require_none
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.mx_scale.questions import ELEMENT, EXPONENTS, NAN, BlockQuestion, questions
from amp_lessons.course.exercises.report import common_findings
from amp_lessons.course.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.course.exercises.small_formats import mistakes as of_scales


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the exponents of many blocks, the plainest first."""
    mx_scale = function(worker, "mx_scale", torch.ones(32))
    notes: dict[str, Finding] = {}
    earlier: list[Answer] = []
    for question in questions():
        returned = _returned(mx_scale, question)
        exponent = _whole(returned, question)
        require_none(mistakes(exponent, question, earlier))
        earlier.append((question, exponent))
        for remark in _remarks(returned, exponent, question):
            notes.setdefault(remark.code, remark)
    yield passed("nothing_saturates", "no block is cut, not even where the floor would cut it")
    yield passed("smallest_exponent", "and at the next smaller exponent one would be")
    yield passed("codes_of_e8m0", "zeros, the smallest numbers, inf and NaN get exponents that E8M0 has")
    yield from notes.values()


def _returned(mx_scale: LearnersFunction, question: BlockQuestion) -> Any:
    block = question.block.clone()
    returned = mx_scale(block, about=f"for {question.what}")
    if not torch.equal(block.nan_to_num(), question.block.nan_to_num()):
        raise Rejected(
            common_findings.inputs_changed("the numbers of the block", "block.abs() makes a new tensor")
        )
    return returned


def _whole(returned: Any, question: BlockQuestion) -> int:
    number = number_in(returned)
    if number is None or not math.isfinite(number) or number != int(number):
        raise Rejected(
            common_findings.wrong_return_type(
                "an int was", f"{described(returned)}, for {question.what}", "return k, not 2**k, as an int"
            )
        )
    return int(number)


def _remarks(returned: Any, exponent: int, question: BlockQuestion) -> Iterator[Finding]:
    yield from remark_on_type(returned, int)
    if exponent < question.smallest:
        yield note(
            "rounds_to_the_largest",
            f"for {question.what} the largest magnitude lands at {question.lands_at(exponent):.8g}, above "
            "448, and is rounded to it: within half a step, so nothing is lost",
            "an exponent more is what keeps it at 448 or below; is a logarithm rounded next to a whole "
            "number?",
        )


# --- by which mistake an exponent is wrong

Answer: TypeAlias = tuple[BlockQuestion, int]


def mistakes(exponent: int, question: BlockQuestion, earlier: Sequence[Answer]) -> Iterator[Finding]:
    """Yield what is wrong with this exponent, the root cause first; nothing where it is right.

    ``earlier`` are answers that were right: they tell ways of rounding apart that agree here.
    """
    if exponent not in question.right:
        yield from _confusions(exponent, question)
        yield from _special(exponent, question)
        yield from _rounding(exponent, question, earlier)


def _confusions(exponent: int, question: BlockQuestion) -> Iterator[Finding]:
    """Find out whether the right exponent was found and handed over as something else."""
    what = _said(exponent, question)
    if not math.isfinite(question.amax) or question.amax == 0:
        return
    if -exponent in question.right:
        yield of_scales.scale_inverted(what, "the exponent is that of what the block is multiplied by")
    if exponent - 127 in question.right:
        yield failed(
            "biased_exponent",
            f"{what}: this is the code that E8M0 stores, which is the exponent plus 127",
            "return the exponent itself, without the bias",
        )
    largest = float(question.block.max())
    if 0 < largest < question.amax and exponent in BlockQuestion("", question.block.clamp(min=0)).right:
        yield catalogue.steps.signs_ignored(
            f"{what}: the largest number decides here, {largest:.3g}, and a larger magnitude is negative",
            "magnitudes decide: block.abs().max()",
        )


def _said(exponent: int, question: BlockQuestion) -> str:
    return f"for {question.what}, with the exponent {exponent}"


def _special(exponent: int, question: BlockQuestion) -> Iterator[Finding]:
    what = _said(exponent, question)
    if not math.isfinite(question.amax):
        yield of_scales.inf_hidden(what, f"only {NAN}, E8M0's NaN, lets the block be seen for what it is")
    elif question.amax == 0:
        yield of_scales.zero_amax(what, f"this is no exponent from {EXPONENTS[0]} to {EXPONENTS[-1]}")
    elif exponent not in EXPONENTS:
        yield failed(
            "outside_e8m0",
            f"{what}: E8M0 has the exponents from {EXPONENTS[0]} to {EXPONENTS[-1]}",
            f"max(k, {EXPONENTS[0]}): so small a block loses some of its numbers, and there is no other "
            "scale",
        )


def _rounding(exponent: int, question: BlockQuestion, earlier: Sequence[Answer]) -> Iterator[Finding]:
    """Say what the exponent does to the block, and by which way of rounding one comes to it."""
    what, lands_at = _said(exponent, question), question.lands_at(exponent)
    so_far = [*earlier, (question, exponent)]
    if question.block.dtype.itemsize == 2:  # in fp32 all was well
        yield of_scales.computed_in_16_bits(what, f"the largest magnitude lands at {lands_at:.4g}")
    if lands_at == ELEMENT.max / 2:
        yield _one_too_many(what, lands_at)
    if lands_at <= ELEMENT.max:
        yield of_scales.range_unused(lands_at, ELEMENT, what)
    if _all_by(_floor, so_far):
        yield _floor_saturates(what, lands_at)
    if _all_by(_nearest, so_far):
        yield _nearest_saturates(what, lands_at)
    yield of_scales.saturates(lands_at, ELEMENT, what)


def _all_by(rule: Callable[[float], int], answers: Sequence[Answer]) -> bool:
    return all(exponent == rule(question.amax) for question, exponent in answers)


def _floor(amax: float) -> int:
    return math.frexp(amax)[1] - math.frexp(ELEMENT.max)[1]


def _nearest(amax: float) -> int:
    return round(math.log2(amax / ELEMENT.max))


def _lost(lands_at: float) -> str:
    return f"the largest magnitude lands at {lands_at:.4g} and loses {1 - ELEMENT.max / lands_at:.0%}"


def _floor_saturates(what: str, lands_at: float) -> Finding:
    return failed(
        "floor_saturates",
        f"{what}: {_lost(lands_at)}: the exponents of largest magnitude and largest number were subtracted, "
        "as the OCP standard suggests, which takes what lies above 448 for 448",
        "448 is 1.75 · 2**8: compare mantissas too, or round log2(amax / 448) up",
    )


def _nearest_saturates(what: str, lands_at: float) -> Finding:
    return failed(
        "nearest_saturates",
        f"{what}: {_lost(lands_at)}: the exponent was rounded to the nearest, which may lose up to "
        f"{1 - 2**-0.5:.0%}",
        "round log2(amax / 448) up: math.ceil",
    )


def _one_too_many(what: str, lands_at: float) -> Finding:
    return failed(
        "one_too_many",
        f"{what}: the largest magnitude lands at {lands_at:.4g}, and one exponent less would do",
        "the smallest exponent at which nothing saturates is asked for, also where amax is 448 times a power "
        "of two: floor(…) + 1 goes one too far there",
    )
