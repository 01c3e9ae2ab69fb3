"""The exponent that a block shares, held against all exponents there are, tried one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from amp_lessons.audit.findings import Finding, note, passed
from amp_lessons.exercises.attempt import Attempt, LearnersFunction, Rejected, require_none
from amp_lessons.exercises.mx_scale.mistakes import Answer, mistakes
from amp_lessons.exercises.mx_scale.questions import Question, questions
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding]:
    """Ask for the exponents of many blocks, the plainest first."""
    mx_scale = attempt.function(torch.ones(32))
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


def _returned(mx_scale: LearnersFunction, question: Question) -> Any:
    block = question.block.clone()
    returned = mx_scale(block, about=f"for {question.what}")
    if not torch.equal(block.nan_to_num(), question.block.nan_to_num()):
        raise Rejected(
            common_findings.inputs_changed("the numbers of the block", "block.abs() makes a new tensor")
        )
    return returned


def _whole(returned: Any, question: Question) -> int:
    number = number_in(returned)
    if number is None or not math.isfinite(number) or number != int(number):
        raise Rejected(
            common_findings.wrong_return_type(
                "an int was", f"{describe(returned)}, for {question.what}", "return k, not 2**k, as an int"
            )
        )
    return int(number)


def _remarks(returned: Any, exponent: int, question: Question) -> Iterator[Finding]:
    yield from remark_on_type(returned, int)
    if exponent < question.smallest:
        yield note(
            "rounds_to_the_largest",
            f"for {question.what} the largest magnitude lands at {question.lands_at(exponent):.8g}, above "
            "448, and is rounded to it: within half a step, so nothing is lost",
            "an exponent more is what keeps it at 448 or below; is a logarithm rounded next to a whole "
            "number?",
        )
