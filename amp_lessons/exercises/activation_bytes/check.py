"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed, note, passed
from amp_lessons.exercises.activation_bytes.mistakes import Answers, mistakes
from amp_lessons.exercises.activation_bytes.questions import Question, questions
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.text.describing import describe


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = common_findings.uncallable(attempt, "activation_bytes", "linear", 8, 4, True)
    if finding is not None:
        return Verdict((finding,))
    answers: Answers = {}
    remarks: list[Finding] = []
    for question in questions():
        outcome = sandbox.call(attempt, *question)
        finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
        if finding is None and outcome.error is not None:
            finding = common_findings.raised(outcome, f"for {question}")
        number = _number(outcome.value)
        finding = finding or _not_bytes(outcome.value, number, question)
        if finding is not None:
            return Verdict((finding,))
        answers[question] = int(number)
        remarks += [] if isinstance(number, int) else [_not_an_int(outcome.value)]
    return Verdict((*(mistakes(answers) or _what_holds()), *dict.fromkeys(remarks)))


def _number(value: Any) -> Any:
    """Return the Python number that ``value`` is, or holds, and anything else as it is."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value
    if isinstance(value, np.generic):
        return value.item()
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _not_bytes(value: Any, number: Any, question: Question) -> Finding | None:
    if isinstance(number, (int, float)) and not isinstance(number, bool) and number == number // 1:
        return None
    return failed(
        "not_bytes",
        f"a whole number of bytes was expected for {question}, not {describe(value)}",
        "return one int: how many numbers are kept, times the bytes of each",
    )


def _not_an_int(value: Any) -> Finding:
    what = value.dtype if isinstance(value, Tensor) else type(value).__name__
    return note("not_an_int", f"an int was asked for, not {what}", "use // and int")


def _what_holds() -> tuple[Finding, ...]:
    count = len(list(questions()))
    return (
        passed("bytes", f"all {count} predictions equal what autograd keeps by CUDA's rules, to the byte"),
    )
