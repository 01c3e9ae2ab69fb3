"""Which mistake explains wrong predictions of what a layer keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.activation_bytes.questions import LAYERS, Question
from amp_lessons.exercises.activation_bytes.wrong_numbers import (
    OF_ALL_LAYERS,
    OF_ANY_LAYER,
    OF_LAYER,
    SOMETHING_ELSE,
    Mistake,
)

Answers = dict[Question, int]


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


def _explains(mistake: Mistake, questions: Iterable[Question], answers: Answers) -> bool:
    return all(answers[question] in mistake.gives(question) for question in questions)


def _mistake_in_layer(wrong: list[Question], answers: Answers) -> Finding:
    """Name the mistake that explains most: all wrong answers, or those in one precision."""
    same_precision = [question for question in wrong if question.autocast == wrong[0].autocast]
    known = (*OF_LAYER[wrong[0].layer], *OF_ANY_LAYER)
    for questions in (wrong, same_precision):
        for mistake in known:
            if _explains(mistake, questions, answers):
                return _finding(questions[0], answers, mistake)
    return _finding(wrong[0], answers, SOMETHING_ELSE)


def _finding(question: Question, answers: Answers, mistake: Mistake) -> Finding:
    bytes_ = f"autograd keeps {question.right:,} bytes, not {answers[question]:,}"
    return failed(mistake.code, f"{question}: {bytes_}. {mistake.why}", mistake.hint)
