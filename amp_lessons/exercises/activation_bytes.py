"""How many bytes does one layer make autograd keep? Predicted by the learner, measured by the check."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import cache
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from amp_lessons.exercises import conduct, sandbox
from amp_lessons.exercises.results import Exercise, Finding, Verdict, failed, note, passed
from amp_lessons.exercises.sources import source_of

# each maps (tokens, width) to (tokens, width)
LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width),
    "relu": lambda width: nn.ReLU(),
    "gelu": lambda width: nn.GELU(),
    "layer_norm": lambda width: nn.LayerNorm(width),
    "softmax": lambda width: nn.Softmax(dim=-1),
    "dropout": lambda width: nn.Dropout(0.1),
}
_SHAPES = ((96, 64), (24, 160))


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


def measured_bytes(layer: str, tokens: int, width: int, *, autocast: bool) -> int:
    """Measure what autograd keeps, by CUDA's rules and kernels, without a GPU."""
    return sum(_measured(layer, tokens, width, autocast).values())


@cache
def _measured(layer: str, tokens: int, width: int, autocast: bool) -> dict[torch.dtype, int]:
    # imported late: only this check needs them, and they are not quick to load
    fakes, measure, kernels = map(importlib.import_module, _NEEDED)
    dtype = torch.float16 if autocast else None
    with fakes.fake_tensors():
        module = LAYERS[layer](width)
        x = torch.empty(tokens, width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), kernels.cuda_kernels():
        return measure.saved_activation_bytes(module, x, dtype=dtype, device_type="cuda")


_NEEDED = ("amp_lessons.autocast", "amp_lessons.measure", "amp_lessons.measure.kernels")


class _Question(NamedTuple):
    layer: str
    tokens: int
    width: int
    autocast: bool

    @property
    def elements(self) -> int:
        return self.tokens * self.width

    @property
    def size(self) -> int:
        """The bytes of each number that arrives."""
        return 2 if self.autocast else 4

    @property
    def right(self) -> int:
        return sum(_measured(*self).values())

    @property
    def numbers(self) -> int:
        """How many numbers are kept, of whatever size."""
        return sum(kept // dtype.itemsize for dtype, kept in _measured(*self).items())

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


def _questions() -> Iterator[_Question]:
    for layer in LAYERS:
        for autocast in (False, True):
            for tokens, width in _SHAPES:
                yield _Question(layer, tokens, width, autocast)


def _examine(attempt: Any) -> Verdict:
    finding = conduct.uncallable(attempt, "activation_bytes", "linear", 8, 4, True)
    if finding is not None:
        return Verdict((finding,))
    answers: _Answers = {}
    remarks: list[Finding] = []
    for question in _questions():
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
    return Verdict((*(_mistakes(answers) or _what_holds()), *dict.fromkeys(remarks)))


def _number(value: Any) -> Any:
    """Return the Python number that ``value`` is, or holds, and anything else as it is."""
    if isinstance(value, Tensor):
        return value.item() if value.numel() == 1 else value
    if isinstance(value, np.generic):
        return value.item()
    return int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value


def _not_bytes(value: Any, number: Any, question: _Question) -> Finding | None:
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


def _mistakes(answers: _Answers) -> tuple[Finding, ...]:
    """Name one mistake that explains all wrong answers, or else one for each layer."""
    wrong = [question for question, seen in answers.items() if seen != question.right]
    for mistake in _OF_ALL_LAYERS:
        explained = all(answers[question] in mistake.gives(question) for question in answers)
        if explained and len({question.layer for question in wrong}) > 1:
            return (_finding(wrong[0], answers, mistake),)
    layers = [[question for question in wrong if question.layer == layer] for layer in LAYERS]
    return tuple(_mistake_in_layer(questions, answers) for questions in layers if questions)


def _mistake_in_layer(wrong: list[_Question], answers: _Answers) -> Finding:
    """Name the mistake that explains most: all wrong answers, or those in one precision."""
    same_precision = [question for question in wrong if question.autocast == wrong[0].autocast]
    known = (*_OF_LAYER[wrong[0].layer], *_OF_ANY_LAYER)
    for questions in (wrong, same_precision):
        for mistake in known:
            if all(answers[question] in mistake.gives(question) for question in questions):
                return _finding(questions[0], answers, mistake)
    return _finding(wrong[0], answers, _SOMETHING_ELSE)


def _finding(question: _Question, answers: _Answers, mistake: _Mistake) -> Finding:
    bytes_ = f"autograd keeps {question.right:,} bytes, not {answers[question]:,}"
    return failed(mistake.code, f"{question}: {bytes_}. {mistake.why}", mistake.hint)


_Answers = dict[_Question, int]


class _Mistake(NamedTuple):
    """A mistake and the numbers that it may give for a question."""

    code: str
    why: str
    hint: str
    gives: Callable[[_Question], set[int]]


def _under_autocast(gives: Callable[[_Question], set[int]]) -> Callable[[_Question], set[int]]:
    """Restrict a mistake to questions under autocast."""
    return lambda question: gives(question) if question.autocast else set()


def _without_copy(q: _Question) -> int:
    """Return what linear keeps, its weight's copy left out."""
    return q.right - (q.width**2 * q.size if q.autocast else 0)


_OF_ALL_LAYERS = (
    _Mistake("bits_not_bytes", "That counts bits", "divide by 8", lambda q: {q.right * 8}),
    _Mistake(
        "elements_not_bytes",
        "That counts numbers, not bytes",
        "times 4 in fp32, times 2 in fp16",
        lambda q: {q.numbers},
    ),
    _Mistake(
        "tokens_and_width_swapped",
        "That would be right with tokens and width swapped",
        "the input has a row of width numbers for each token; the weight is width by width",
        lambda q: {q._replace(tokens=q.width, width=q.tokens).right},
    ),
    _Mistake(
        "autocast_ignored",
        "That is what it keeps without autocast. Under autocast the input arrives in fp16, and some layers "
        "keep it so",
        "the answer depends on autocast for some of the layers",
        lambda q: {q._replace(autocast=False).right},
    ),
    _Mistake(
        "autocast_swapped",
        "That would be right the other way round: autocast=True is fp16 autocast, False is plain fp32",
        "four bytes per number without autocast",
        lambda q: {q._replace(autocast=not q.autocast).right},
    ),
    _Mistake(
        "halved_everywhere",
        "Autocast does not halve everything: some layers compute in fp32, some keep no fp16 at all, and some "
        "keep more",
        "look up each operation in autocast.policy('cuda')",
        lambda q: {q._replace(autocast=False).right // (2 if q.autocast else 1)},
    ),
)

_AUTOCAST_FORGOTTEN = _Mistake(
    "autocast_forgotten",
    "Under autocast its input arrives in fp16 and stays fp16",
    "two bytes per element under autocast",
    _under_autocast(lambda q: {q.elements * 4, q.right + q.elements * 2}),
)
_FP32_LIST = (
    "fp32_list_forgotten",
    "On CUDA this operation is in autocast's fp32 list: its input is cast to fp32, and fp32 is what it keeps",
    "four bytes per element, under autocast too",
)
_ONE_IS_ENOUGH = _Mistake(
    "input_and_output",
    "One of the two is enough: relu and softmax need their output, gelu its input",
    "count each element once",
    lambda q: {q.right * 2, q.right + q.elements * q.size},
)
_EXTRA_COPY = _Mistake(
    "extra_copy",
    "It computes in fp32 and keeps nothing of this size but fp32: no fp16 copy is kept beside it",
    "count each element once, in the dtype that the operation computes with",
    _under_autocast(lambda q: {q.right + q.elements * 2}),
)
_NOT_A_MASK = (
    "one_byte_per_element",
    "That is one byte per element, as for a mask; what is kept are the numbers themselves",
    "times the bytes of each number",
)

_LINEAR = (
    _Mistake(
        "weight_copy_forgotten",
        "Autocast made an fp16 copy of the weight, and backward needs that copy, not the parameter",
        "add width * width * 2 under autocast",
        _under_autocast(lambda q: {_without_copy(q)}),
    ),
    _Mistake(
        "weight_copy_not_half",
        "What counts of the weight under autocast is its fp16 copy: two bytes per number, not four",
        "add width * width * 2 under autocast",
        _under_autocast(lambda q: {_without_copy(q) + q.width**2 * 4}),
    ),
    _Mistake(
        "bias_counted",
        "The gradient of a bias does not need the bias",
        "only input and weight count",
        lambda q: {q.right + q.width * q.size, q.right + q.width * 4},
    ),
    _Mistake(
        "parameters_counted",
        "The weight is a parameter: it is there anyway, and saving it costs nothing",
        "count the input, and under autocast the weight's fp16 copy",
        lambda q: {
            base + parameters
            for base in (q.right, _without_copy(q))
            for parameters in (q.width**2 * 4, (q.width**2 + q.width) * 4)
        },
    ),
    _AUTOCAST_FORGOTTEN,
    _Mistake(
        "output_counted",
        "The output is not needed: the weight's gradient needs the input, the input's gradient the weight",
        "count the input, and under autocast the weight's fp16 copy",
        lambda q: {base + q.elements * q.size for base in (q.right, _without_copy(q))},
    ),
    _Mistake(
        "elements_not_bytes",
        "That counts numbers, not bytes",
        "times 4 in fp32, times 2 in fp16",
        lambda q: {q.numbers, q.elements, q.right - q.elements * (q.size - 1)},
    ),
)
_RELU = (
    _Mistake(*_NOT_A_MASK, lambda q: {q.elements}),
    _AUTOCAST_FORGOTTEN,
    _ONE_IS_ENOUGH,
    _Mistake(
        "mask_counted",
        "No mask is kept beside it: the output itself tells which elements were let through",
        "count the output alone",
        lambda q: {q.right + q.elements, q.right + -(-q.elements // 8)},
    ),
)
_GELU = (_Mistake(*_NOT_A_MASK, lambda q: {q.elements}), _AUTOCAST_FORGOTTEN, _ONE_IS_ENOUGH)
_LAYER_NORM = (
    _Mistake(
        "statistics_in_half",
        "It computes in fp32 under autocast too, and its mean and inverse deviation of each token are fp32",
        "add two fp32 numbers per token",
        _under_autocast(lambda q: {q.right - 4 * q.tokens}),
    ),
    _Mistake(
        "statistics_forgotten",
        "Backward also needs the mean and the inverse deviation of each token",
        "add two fp32 numbers per token",
        lambda q: {q.right - 4 * q.tokens, q.right - 8 * q.tokens},
    ),
    _Mistake(
        "statistics_per_feature",
        "It normalizes each token: there is one mean and one inverse deviation per token, not per feature",
        "two fp32 numbers for each of the tokens, however wide they are",
        lambda q: {q.right + (q.width - q.tokens) * 8, q.elements * 4 + q.width * 4},
    ),
    _Mistake(
        "parameters_counted",
        "Its weight and bias are parameters: they are there anyway, and saving them costs nothing",
        "count the input and the statistics",
        lambda q: {q.right + q.width * each for each in (q.size, 4, 2 * q.size, 8)},
    ),
    _Mistake(
        *_FP32_LIST,
        _under_autocast(lambda q: {q.elements * 2 + each * q.tokens for each in (0, 2, 4, 8)}),
    ),
    _EXTRA_COPY,
    _Mistake(
        "output_counted",
        "The output is not needed: input, mean and inverse deviation are enough",
        "count each element once",
        lambda q: {q.right + q.elements * q.size, q.right + q.elements * 4},
    ),
)
_SOFTMAX = (
    _Mistake(*_NOT_A_MASK, lambda q: {q.elements}),
    _Mistake(*_FP32_LIST, _under_autocast(lambda q: {q.right // 2})),
    _EXTRA_COPY,
    _ONE_IS_ENOUGH,
    _Mistake(
        "statistics_counted",
        "The maximum or the sum of each token is not kept: the output is enough",
        "count the output alone",
        lambda q: {q.right + each * q.tokens for each in (q.size, 4, 2 * q.size, 8)},
    ),
)
_DROPOUT = (
    _Mistake(
        "mask_follows_autocast",
        "A mask holds no numbers that autocast could make smaller: a bool takes one byte in any precision",
        "one byte per element, in any precision",
        _under_autocast(lambda q: {q.right // 2}),
    ),
    _Mistake(
        "mask_not_one_byte",
        "A GPU keeps which elements were dropped, nothing else, and a bool takes one byte",
        "one byte per element, in any precision",
        lambda q: {q.right * 2, q.right * 4},
    ),
    _Mistake(
        "mask_not_one_byte",
        "PyTorch does not pack eight bools into a byte",
        "one byte per element",
        lambda q: {q.elements // 8, -(-q.elements // 8)},
    ),
    _Mistake(
        "mask_and_activation",
        "A GPU keeps the mask alone: a gradient passes where the mask is set, whatever came in or went out",
        "one byte per element, in any precision",
        lambda q: {q.right + q.elements * q.size, q.right + q.elements * 4},
    ),
)
_OF_LAYER: dict[str, tuple[_Mistake, ...]] = {
    "linear": _LINEAR,
    "relu": _RELU,
    "gelu": _GELU,
    "layer_norm": _LAYER_NORM,
    "softmax": _SOFTMAX,
    "dropout": _DROPOUT,
}
_OF_ANY_LAYER = (
    _Mistake(
        "nothing_kept",
        "Its gradient cannot be computed from nothing",
        "what does its derivative need?",
        lambda q: {0},
    ),
    _Mistake(
        "half_without_autocast",
        "Without autocast nothing is cast to half precision",
        "four bytes per number in fp32",
        lambda q: set() if q.autocast else {q.right // 2},
    ),
    _Mistake("bits_not_bytes", "That counts bits", "divide by 8", lambda q: {q.right * 8}),
)
_SOMETHING_ELSE = _Mistake(
    "wrong_bytes",
    "Ask what the derivative needs: input, output, or less",
    "write down what is kept, its number of elements, and the bytes of each",
    lambda q: set(),
)


def _what_holds() -> tuple[Finding, ...]:
    count = len(list(_questions()))
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
        "of shape (tokens, width) that arrives in fp32 without autocast and in fp16 with it, and needs a "
        "gradient. layer is one of: linear (width to width), relu, gelu, layer_norm, softmax, dropout. "
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
        "PyTorch tells: let y = layer(x) for an x that requires a gradient, and look for the attributes of "
        "y.grad_fn whose names begin with _saved. Only dropout differs: CUDA keeps a mask, the CPU "
        "factors. autocast.policy('cuda') says which operations run in fp32.",
        "linear under autocast also keeps the fp16 copy of its weight, width * width * 2 bytes; layer_norm "
        "keeps its input in fp32 and two fp32 numbers per token.",
    ),
    explanation=(
        "Only what autocast runs in fp16 keeps half. What is in the fp32 list keeps fp32, a mask keeps one "
        "byte, and a weight's fp16 copy comes on top. That is why activations never shrink to exactly half. "
        "In a network, neighbours often keep the same tensor (the output of relu is the input of linear), "
        "and it is stored once."
    ),
    answer=activation_bytes,
    answer_source=source_of(activation_bytes, imports=""),
    examine=_examine,
)
