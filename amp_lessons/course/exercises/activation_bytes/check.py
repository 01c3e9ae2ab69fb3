"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import nn

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.autocast import fake_tensors
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.course.exercises.attempt import reject
from amp_lessons.course.exercises.bed import described, function
from amp_lessons.course.exercises.report.common_findings import number_in, remark_on_type
from amp_lessons.measure import saved_activation_bytes


class LayerQuestion(NamedTuple):
    """How many bytes does ``layer`` keep, for an input of shape (tokens, width)?"""

    layer: str
    tokens: int
    width: int
    autocast: bool

    @property
    def elements(self) -> int:
        """How many elements the input has."""
        return self.tokens * self.width

    @property
    def moving(self) -> int:
        """The bytes of each element of the input, as it arrives."""
        return 2 if self.autocast else 4

    @property
    def right(self) -> int:
        """The bytes that autograd keeps for the backward pass."""
        return sum(_kept(self).values())

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


@cache
def _kept(question: LayerQuestion) -> dict[torch.dtype, int]:
    """Measure the bytes that autograd keeps, by CUDA's rules and kernels, without a GPU."""
    dtype = torch.float16 if question.autocast else None
    with fake_tensors():
        module = LAYERS[question.layer].make(question.width)
        x = torch.empty(question.tokens, question.width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), cuda_kernels():
        return saved_activation_bytes(module, x, dtype=dtype, device_type="cuda")


# --- what each layer keeps, and what it might be thought to keep

Count = Callable[[LayerQuestion], int]


class Layer(NamedTuple):
    """A layer: of what it ``keeps`` how many there are and the bytes of each, and why nothing else.

    ``too`` has the bytes of what else may be counted.
    """

    make: Callable[[int], nn.Module]
    keeps: dict[str, tuple[Count, Count]]
    too: dict[str, Count]
    why: str


LAYERS = {
    "linear": Layer(
        lambda width: nn.Linear(width, width),
        {
            "number of its input": (lambda q: q.elements, lambda q: q.moving),
            "number of the weight's fp16 copy": (lambda q: q.width**2 * q.autocast, lambda q: 2),
        },
        {
            "its output": lambda q: q.elements * q.moving,
            "the weight": lambda q: q.width**2 * 4,
            "the bias": lambda q: q.width * q.moving,
        },
        "the weight's gradient needs the input, as it arrives; the input's needs the weight: a parameter, "
        "which is there anyway, but the copy that autocast makes of it, width by width, is not; the bias's "
        "gradient needs neither",
    ),
    "relu": Layer(
        lambda width: nn.ReLU(),
        {"number of its output": (lambda q: q.elements, lambda q: q.moving)},
        {"its input": lambda q: q.elements * q.moving, "a mask": lambda q: q.elements},
        "its output, in the dtype in which its input arrives, tells which elements were let through",
    ),
    "gelu": Layer(
        lambda width: nn.GELU(),
        {"number of its input": (lambda q: q.elements, lambda q: q.moving)},
        {"its output": lambda q: q.elements * q.moving},
        "its derivative needs the input, in the dtype in which it arrives, and nothing else",
    ),
    "layer_norm": Layer(
        lambda width: nn.LayerNorm(width),
        {
            "number of its input": (lambda q: q.elements, lambda q: 4),
            "mean and inverse deviation": (lambda q: q.tokens, lambda q: 8),
        },
        {"its output": lambda q: q.elements * 4, "an fp16 copy": lambda q: q.elements * 2 * q.autocast},
        "on CUDA it is in autocast's fp32 list: it keeps its input in fp32, and of each token mean and "
        "inverse deviation, two fp32 numbers; parameters are there anyway",
    ),
    "softmax": Layer(
        lambda width: nn.Softmax(dim=-1),
        {"number of its output": (lambda q: q.elements, lambda q: 4)},
        {"its input": lambda q: q.elements * 4, "an fp16 copy": lambda q: q.elements * 2 * q.autocast},
        "on CUDA it is in autocast's fp32 list, so its output is in fp32; its derivative needs nothing else",
    ),
    "dropout": Layer(
        lambda width: nn.Dropout(0.1),
        {"element of its mask": (lambda q: q.elements, lambda q: 1)},
        {"its input or output": lambda q: q.elements * q.moving},
        "a GPU keeps a mask that tells which elements were dropped: one bool, one byte, in any precision",
    ),
}


# known mistakes that are made with every layer, and the number that each gives
_OF_ALL_LAYERS: tuple[tuple[str, str, Count], ...] = (
    ("bits_not_bytes", "That counts bits", lambda q: q.right * 8),
    (
        "elements_not_bytes",
        "That counts numbers, not bytes: times 4 in fp32, times 2 in fp16",
        lambda q: sum(kept // dtype.itemsize for dtype, kept in _kept(q).items()),
    ),
    (
        "tokens_and_width_swapped",
        "That would be right with tokens and width swapped",
        lambda q: q._replace(tokens=q.width, width=q.tokens).right,
    ),
    (
        "autocast_ignored",
        "That is what it keeps without autocast; under autocast some layers keep fp16",
        lambda q: q._replace(autocast=False).right,
    ),
    (
        "autocast_swapped",
        "That would be right the other way round: autocast=True is fp16 autocast, False is plain fp32",
        lambda q: q._replace(autocast=not q.autocast).right,
    ),
    (
        "halved_everywhere",
        "Autocast does not halve everything: some layers compute in fp32, and some keep no fp16 at all",
        lambda q: q._replace(autocast=False).right // (2 if q.autocast else 1),
    ),
)
_COUNT = "write down what is kept, its number of elements, and the bytes of each, with autocast and without"


def _of_a_layer(layer: Layer, asked: list[LayerQuestion]) -> Iterator[tuple[str, str, list[float]]]:
    """Yield the code and the words of each mistake with one layer, and the numbers that it gives."""
    for what, (count, size) in layer.keeps.items():
        for each in (0, 4, 2, 1, 1 / 2, 1 / 8):
            numbers = [question.right + count(question) * (each - size(question)) for question in asked]
            yield "other_bytes", f"That is {each:g} B for each {what}", numbers
    for what, extra in layer.too.items():
        yield "counted_too", f"That counts {what} as well", [each.right + extra(each) for each in asked]


# --- the check


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for every layer, with autocast and without, and hold the answers against what autograd keeps."""
    activation_bytes = function(worker, "activation_bytes", "linear", 8, 4, True)
    tokens, width = (8 * torch.randint(4, 20, (2,), generator=draw)).tolist()
    returned: list[Any] = []
    answers: dict[LayerQuestion, int] = {}
    for question in (*_questions(tokens, width), *_questions(*_SHAPE)):
        returned.append(activation_bytes(*question, about=f"for {question}"))
        answers[question] = _whole_number(returned[-1], question)
    mistakes = list(_mistakes(answers))
    what = f"all {len(answers)} predictions equal what autograd keeps by CUDA's rules, to the byte"
    yield from mistakes or [passed("bytes", what)]
    for value in returned:
        yield from remark_on_type(value, int)


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
        reject(
            "not_bytes",
            f"a whole number of bytes was expected for {question}, not {described(value)}",
            "return one int: how many numbers are kept, times the bytes of each",
        )
    return int(number)


def _mistakes(answers: dict[LayerQuestion, int]) -> Iterator[Finding]:
    """Yield one mistake that explains all answers, or else one for each layer with a wrong one."""
    wrong = [question for question, seen in answers.items() if seen != question.right]
    layers = list(dict.fromkeys(question.layer for question in wrong))
    for code, words, number in _OF_ALL_LAYERS if len(layers) > 1 else ():
        if all(seen == number(question) for question, seen in answers.items()):
            yield _finding(code, words, _COUNT, wrong[0], answers[wrong[0]])
            return
    for name in layers:
        of_layer = [question for question in wrong if question.layer == name]
        of_precision = [question for question in of_layer if question.autocast == of_layer[0].autocast]
        known = (
            (code, words)
            for asked in (of_layer, of_precision)
            for code, words, numbers in _of_a_layer(LAYERS[name], asked)
            if numbers == [answers[question] for question in asked]
        )
        code, words = next(known, ("wrong_bytes", "Ask what the derivative needs: input, output, or less"))
        yield _finding(code, words, LAYERS[name].why, of_layer[0], answers[of_layer[0]])


def _finding(code: str, words: str, hint: str, question: LayerQuestion, seen: int) -> Finding:
    bytes_ = f"autograd keeps {question.right:,} bytes, not {seen:,}"
    return failed(code, f"{question}: {bytes_}. {words}", hint)
