"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.autocast import fake_tensors
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.measure import saved_activation_bytes


class LayerQuestion(NamedTuple):
    """How many bytes does ``layer`` keep, for an input of shape (tokens, width)?"""

    layer: str
    tokens: int
    width: int
    autocast: bool

    @property
    def right(self) -> int:
        """The bytes that autograd keeps for the backward pass."""
        return _kept(self)

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


@cache
def _kept(question: LayerQuestion) -> int:
    """Measure the bytes that autograd keeps, by CUDA's rules and kernels, without a GPU."""
    dtype = torch.float16 if question.autocast else None
    with fake_tensors():
        module = LAYERS[question.layer][0](question.width)
        x = torch.empty(question.tokens, question.width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), cuda_kernels():
        return sum(saved_activation_bytes(module, x, dtype=dtype, device_type="cuda").values())


# --- what each layer keeps

# how the layer is made, what it keeps, and why nothing else
LAYERS: dict[str, tuple[Callable[[int], nn.Module], str]] = {
    "linear": (
        lambda width: nn.Linear(width, width),
        "the weight's gradient needs the input, as it arrives; the input's needs the weight: a parameter, "
        "which is there anyway, but the copy that autocast makes of it, width by width, is not; the bias's "
        "gradient needs neither",
    ),
    "relu": (
        lambda width: nn.ReLU(),
        "its output, in the dtype in which its input arrives, tells which elements were let through",
    ),
    "gelu": (
        lambda width: nn.GELU(),
        "its derivative needs the input, in the dtype in which it arrives, and nothing else",
    ),
    "layer_norm": (
        lambda width: nn.LayerNorm(width),
        "on CUDA it is in autocast's fp32 list: it keeps its input in fp32, and of each token mean and "
        "inverse deviation, two fp32 numbers; parameters are there anyway",
    ),
    "softmax": (
        lambda width: nn.Softmax(dim=-1),
        "on CUDA it is in autocast's fp32 list, so its output is in fp32; its derivative needs nothing else",
    ),
    "dropout": (
        lambda width: nn.Dropout(0.1),
        "a GPU keeps a mask that tells which elements were dropped: one bool, one byte, in any precision",
    ),
}


# --- the check


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for every layer, with autocast and without, and hold the answers against what autograd keeps."""
    activation_bytes = bed.function(worker, "activation_bytes", "linear", 8, 4, True)
    tokens, width = (8 * torch.randint(4, 20, (2,), generator=draw)).tolist()
    answers: dict[LayerQuestion, int] = {}
    for question in (*_questions(tokens, width), *_questions(*_SHAPE)):
        returned = activation_bytes(*question, about=f"for {question}")
        answers[question] = _whole_number(returned, question)
        yield from remark_on_type(returned, int)
    mistakes = list(_mistakes(answers))
    what = f"all {len(answers)} predictions equal what autograd keeps by CUDA's rules, to the byte"
    yield from mistakes or [passed("bytes", what)]


_SHAPE = 24, 168  # besides one that is drawn


def _questions(tokens: int, width: int) -> list[LayerQuestion]:
    return [LayerQuestion(layer, tokens, width, on) for layer in LAYERS for on in (False, True)]


def warm_up() -> None:
    """Measure once what every check asks for; the first time takes seconds."""
    for question in _questions(*_SHAPE):
        _kept(question)


def _whole_number(value: Any, question: LayerQuestion) -> int:
    number = number_in(value)
    if number is None or number != number // 1:
        said = f"a whole number of bytes was expected for {question}, not {bed.described(value)}"
        bed.reject("not_bytes", said, "return one int: how many numbers are kept, times the bytes of each")
    return int(number)


def _mistakes(answers: dict[LayerQuestion, int]) -> Iterator[Finding]:
    """Yield what is wrong with the first wrong answer for each layer."""
    firsts: dict[str, LayerQuestion] = {}
    for question, seen in answers.items():
        if seen != question.right:
            firsts.setdefault(question.layer, question)
    for layer, question in firsts.items():
        elements = question.tokens * question.width
        right, mine = (f"{kept / elements:.4g} B" for kept in (question.right, answers[question]))
        said = f"{question}: autograd keeps {question.right:,} bytes, not {answers[question]:,}: for each of "
        said += f"the input's {elements:,} elements that is {mine}, where {right} are kept"
        yield failed("wrong_bytes", said, LAYERS[layer][1])
