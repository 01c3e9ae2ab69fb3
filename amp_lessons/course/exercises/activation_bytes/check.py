"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.course.exercises.activation_bytes.questions import (
    LAYERS,
    OF_ALL_LAYERS,
    OF_ANY_LAYER,
    OF_LAYER,
    SOMETHING_ELSE,
    LayerQuestion,
    Mistake,
    questions,
)
from amp_lessons.course.exercises.attempt import reject
from amp_lessons.course.exercises.bed import described, function
from amp_lessons.course.exercises.report.common_findings import number_in, remark_on_type


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for every layer, with autocast and without, and hold the answers against what autograd keeps."""
    activation_bytes = function(worker, "activation_bytes", "linear", 8, 4, True)
    returned: list[Any] = []
    answers: dict[LayerQuestion, int] = {}
    for question in questions():
        returned.append(activation_bytes(*question, about=f"for {question}"))
        answers[question] = _whole_number(returned[-1], question)
    yield from list(mistakes(answers)) or [_what_holds(len(answers))]
    yield from _remarks(returned)


def warm_up() -> None:
    """Measure once what every check asks for: what is right, and what mistakes would give."""
    for question in questions():
        for mistake in (*OF_ALL_LAYERS, *OF_ANY_LAYER, *OF_LAYER.get(question.layer, ())):
            mistake.gives(question)


def _what_holds(count: int) -> Finding:
    return passed("bytes", f"all {count} predictions equal what autograd keeps by CUDA's rules, to the byte")


def _whole_number(value: Any, question: LayerQuestion) -> int:
    number = number_in(value)
    if number is None or number != number // 1:
        reject(
            "not_bytes",
            f"a whole number of bytes was expected for {question}, not {described(value)}",
            "return one int: how many numbers are kept, times the bytes of each",
        )
    return int(number)


def _remarks(returned: Iterable[Any]) -> Iterator[Finding]:
    for value in returned:
        yield from remark_on_type(value, int)


# --- which mistake explains wrong predictions of what a layer keeps

Answers = dict[LayerQuestion, int]


def mistakes(answers: Answers) -> Iterator[Finding]:
    """Yield one mistake that explains all wrong answers, or else one for each layer."""
    wrong = [question for question, seen in answers.items() if seen != question.right]
    layers = [layer for layer in LAYERS if any(question.layer == layer for question in wrong)]
    if len(layers) > 1:
        for mistake in OF_ALL_LAYERS:
            if _explains(mistake, answers, answers):
                yield _finding(wrong[0], answers, mistake)
                return
    for layer in layers:
        yield _mistake_in_layer([question for question in wrong if question.layer == layer], answers)


def _explains(mistake: Mistake, questions: Iterable[LayerQuestion], answers: Answers) -> bool:
    return all(answers[question] in mistake.gives(question) for question in questions)


def _mistake_in_layer(wrong: list[LayerQuestion], answers: Answers) -> Finding:
    """Name the mistake that explains most: all wrong answers, or those in one precision."""
    same_precision = [question for question in wrong if question.autocast == wrong[0].autocast]
    known = (*OF_LAYER[wrong[0].layer], *OF_ANY_LAYER)
    for asked in (wrong, same_precision):
        for mistake in known:
            if _explains(mistake, asked, answers):
                return _finding(asked[0], answers, mistake)
    return _finding(wrong[0], answers, SOMETHING_ELSE)


def _finding(question: LayerQuestion, answers: Answers, mistake: Mistake) -> Finding:
    bytes_ = f"autograd keeps {question.right:,} bytes, not {answers[question]:,}"
    return failed(mistake.code, f"{question}: {bytes_}. {mistake.why}", mistake.hint)
