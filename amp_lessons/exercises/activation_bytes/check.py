"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from torch import Tensor

from amp_lessons.exercises.activation_bytes.mistakes import Answers, mistakes
from amp_lessons.exercises.activation_bytes.questions import Question, questions
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import conduct
from amp_lessons.exercises.report.results import Exercise, Finding, Verdict, failed, note, passed
from amp_lessons.exercises.sources import source_of


def activation_bytes(layer, tokens, width, autocast):  # type: ignore[no-untyped-def]
    """Return the bytes that ``layer`` saves for backward, of parameters only their fp16 copies."""
    elements = tokens * width
    size = 2 if autocast else 4
    if layer == "linear":
        return elements * size + (width * width * 2 if autocast else 0)  # its input, its weight's copy
    if layer in ("relu", "gelu"):
        return elements * size  # the output of one, the input of the other
    if layer == "layer_norm":
        return elements * 4 + 2 * tokens * 4  # its input in fp32, and mean and deviation of each token
    if layer == "softmax":
        return elements * 4  # its output, in fp32
    return elements  # dropout: a mask


def _examine(attempt: Any) -> Verdict:
    finding = conduct.uncallable(attempt, "activation_bytes", "linear", 8, 4, True)
    if finding is not None:
        return Verdict((finding,))
    answers: Answers = {}
    remarks: list[Finding] = []
    for question in questions():
        outcome = sandbox.call(attempt, *question)
        finding = conduct.not_attempted(outcome) or conduct.misconduct(outcome)
        if finding is None and outcome.error is not None:
            finding = conduct.raised(outcome, f"for {question}")
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
        f"a whole number of bytes was expected for {question}, not {conduct.describe(value)}",
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


EXERCISE = Exercise(
    id="activation_bytes",
    title="Predict what a layer keeps",
    lesson="05",
    difficulty=3,
    minutes=12,
    names=("activation_bytes",),
    task=(
        "Return the bytes that a layer makes autograd keep for the backward pass on a CUDA GPU, for an input "
        "of shape `(tokens, width)` that arrives in fp32 without autocast and in fp16 with it, and needs a "
        "gradient. `layer` is one of: `linear` (width to width), `relu`, `gelu`, `layer_norm`, `softmax`, "
        "`dropout`. "
        "Parameters do not count; fp16 copies of parameters do. Find out which tensors each backward pass "
        "needs, and in which dtype PyTorch stores them: a mask is a tensor too, of bools."
    ),
    stub='''def activation_bytes(layer, tokens, width, autocast):
    """Return, as an int, the bytes kept by "linear", "relu", "gelu", "layer_norm", "softmax", "dropout"."""
    raise NotImplementedError
''',
    hints=(
        "For each layer, ask what its derivative needs: the input, the output, or only which elements were "
        "let through. Then ask in which dtype that is, on CUDA.",
        "PyTorch tells: let `y = layer(x)` for an `x` that requires a gradient, and look for the attributes "
        "of `y.grad_fn` whose names begin with `_saved`. Only dropout differs: CUDA keeps a mask, the CPU "
        "factors. Lesson 02's `explain` says which operations run in fp32: "
        "`from amp_lessons import autocast`, then `autocast.explain('softmax')`.",
        "`linear` under autocast also keeps the fp16 copy of its weight, `width * width * 2` bytes; "
        "`layer_norm` keeps its input in fp32 and two fp32 numbers per token.",
    ),
    explanation=(
        "Only what autocast runs in fp16 keeps half. What is in the fp32 list keeps fp32, a mask keeps one "
        "byte, and a weight's fp16 copy comes on top. That is why the activations of a whole network seldom "
        "shrink to exactly half. In a network, neighbours often keep the same tensor (the output of `relu` "
        "is the input of `linear`), and it is stored once."
    ),
    answer=activation_bytes,
    answer_source=source_of(activation_bytes, imports=""),
    examine=_examine,
)
