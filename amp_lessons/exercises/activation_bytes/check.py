"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.exercises.activation_bytes.mistakes import mistakes
from amp_lessons.exercises.activation_bytes.questions import Question, questions
from amp_lessons.exercises.attempt import Attempt, reject
from amp_lessons.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.text.describing import describe


def check(attempt: Attempt) -> Iterator[Finding]:
    """Ask for every layer, with autocast and without, and hold the answers against what autograd keeps."""
    activation_bytes = attempt.function("linear", 8, 4, True)
    returned: list[Any] = []
    answers: dict[Question, int] = {}
    for question in questions():
        returned.append(activation_bytes(*question, about=f"for {question}"))
        answers[question] = _whole_number(returned[-1], question)
    yield from list(mistakes(answers)) or [_what_holds(len(answers))]
    yield from _remarks(returned)


def _what_holds(count: int) -> Finding:
    return passed("bytes", f"all {count} predictions equal what autograd keeps by CUDA's rules, to the byte")


def _whole_number(value: Any, question: Question) -> int:
    number = number_in(value)
    if number is None or number != number // 1:
        reject(
            "not_bytes",
            f"a whole number of bytes was expected for {question}, not {describe(value)}",
            "return one int: how many numbers are kept, times the bytes of each",
        )
    return int(number)


def _remarks(returned: Iterable[Any]) -> Iterator[Finding]:
    for value in returned:
        yield from remark_on_type(value, int)
