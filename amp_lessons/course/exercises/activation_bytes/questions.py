"""What layers make autograd keep, measured by CUDA's rules and kernels; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from amp_lessons.autocast import fake_tensors
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.measure import saved_activation_bytes

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
    def size(self) -> int:
        """The bytes of one element of the input."""
        return 2 if self.autocast else 4

    @property
    def right(self) -> int:
        """The bytes that autograd keeps for the backward pass, measured on fake tensors."""
        return sum(_bytes_by_dtype(self).values())

    @property
    def numbers(self) -> int:
        """How many elements are kept for the backward pass, whatever their dtype."""
        return sum(kept // dtype.itemsize for dtype, kept in _bytes_by_dtype(self).items())

    def __str__(self) -> str:
        how = "under fp16 autocast" if self.autocast else "in fp32"
        return f"{self.layer} {how}, {self.tokens} tokens, width {self.width}"


@cache
def _bytes_by_dtype(question: LayerQuestion) -> dict[torch.dtype, int]:
    """Measure what autograd keeps, by CUDA's rules and kernels, without a GPU."""
    dtype = torch.float16 if question.autocast else None
    with fake_tensors():
        module = LAYERS[question.layer](question.width)
        x = torch.empty(question.tokens, question.width, dtype=dtype or torch.float32).requires_grad_()
    with torch.enable_grad(), cuda_kernels():
        return saved_activation_bytes(module, x, dtype=dtype, device_type="cuda")


def questions() -> Iterator[LayerQuestion]:
    """Ask for every layer, with autocast and without, in two shapes."""
    for layer in LAYERS:
        for autocast in (False, True):
            for tokens, width in _SHAPES:
                yield LayerQuestion(layer, tokens, width, autocast)


# --- known mistakes in predicting what a layer keeps, and the numbers that each of them gives


class Mistake(NamedTuple):
    """A mistake and the numbers that it may give for a question."""

    code: str
    why: str
    hint: str
    gives: Callable[[LayerQuestion], set[int]]


def _under_autocast(gives: Callable[[LayerQuestion], set[int]]) -> Callable[[LayerQuestion], set[int]]:
    """Restrict a mistake to questions under autocast."""
    return lambda question: gives(question) if question.autocast else set()


def _without_copy(q: LayerQuestion) -> int:
    """Return what linear keeps, its weight's copy left out."""
    return q.right - (q.width**2 * q.size if q.autocast else 0)


OF_ALL_LAYERS = (
    Mistake("bits_not_bytes", "That counts bits", "divide by 8", lambda q: {q.right * 8}),
    Mistake(
        "elements_not_bytes",
        "That counts numbers, not bytes",
        "times 4 in fp32, times 2 in fp16",
        lambda q: {q.numbers},
    ),
    Mistake(
        "tokens_and_width_swapped",
        "That would be right with tokens and width swapped",
        "the input has a row of width numbers for each token; the weight is width by width",
        lambda q: {q._replace(tokens=q.width, width=q.tokens).right},
    ),
    Mistake(
        "autocast_ignored",
        "That is what it keeps without autocast. Under autocast the input arrives in fp16, and some layers "
        "keep it so",
        "the answer depends on autocast for some of the layers",
        lambda q: {q._replace(autocast=False).right},
    ),
    Mistake(
        "autocast_swapped",
        "That would be right the other way round: autocast=True is fp16 autocast, False is plain fp32",
        "four bytes per number without autocast",
        lambda q: {q._replace(autocast=not q.autocast).right},
    ),
    Mistake(
        "halved_everywhere",
        "Autocast does not halve everything: some layers compute in fp32, some keep no fp16 at all, and some "
        "keep more",
        "look up each operation in autocast.policy('cuda')",
        lambda q: {q._replace(autocast=False).right // (2 if q.autocast else 1)},
    ),
)

_AUTOCAST_FORGOTTEN = Mistake(
    "autocast_forgotten",
    "Under autocast its input arrives in fp16 and stays fp16",
    "two bytes per element under autocast",
    _under_autocast(lambda q: {q.elements * 4, q.right + q.elements * 2}),
)


def _fp32_list(how: str, gives: Callable[[LayerQuestion], set[int]]) -> Mistake:
    return Mistake(
        "fp32_list_forgotten",
        f"On CUDA this operation is in autocast's fp32 list: {how}, and fp32 is what it keeps",
        "four bytes per element, under autocast too",
        _under_autocast(gives),
    )


_ONE_IS_ENOUGH = Mistake(
    "input_and_output",
    "One of the two is enough: relu and softmax need their output, gelu its input",
    "count each element once",
    lambda q: {q.right * 2, q.right + q.elements * q.size},
)
_EXTRA_COPY = Mistake(
    "extra_copy",
    "It computes in fp32 and keeps nothing of this size but fp32: no fp16 copy is kept beside it",
    "count each element once, in the dtype that the operation computes with",
    _under_autocast(lambda q: {q.right + q.elements * 2}),
)
_NOT_A_MASK_OF_BITS = (
    "one_bit_per_element",
    "That is one bit per element, as for a packed mask; what is kept are the numbers themselves",
    "times the bytes of each number",
)
_NOT_A_MASK = (
    "one_byte_per_element",
    "That is one byte per element, as for a mask; what is kept are the numbers themselves",
    "times the bytes of each number",
)

_LINEAR = (
    # an input in fp32, or input and output, or tokens for width in the copy: the same number, so one answer
    Mistake(
        "weight_copy_forgotten",
        "Autocast made an fp16 copy of the weight, width by width, and backward needs it: this number does "
        "not hold that copy",
        "count the numbers of the weight, times two bytes, and the input in fp16",
        _under_autocast(lambda q: {q.elements * 4}),
    ),
    Mistake(
        "weight_copy_forgotten",
        "Autocast made an fp16 copy of the weight, and backward needs that copy, not the parameter",
        "that copy counts under autocast: two bytes for each number of the weight",
        _under_autocast(lambda q: {_without_copy(q)}),
    ),
    Mistake(
        "weight_copy_not_half",
        "What counts of the weight under autocast is its fp16 copy: two bytes per number, not four",
        "that copy counts under autocast: two bytes for each number of the weight",
        _under_autocast(lambda q: {_without_copy(q) + q.width**2 * 4}),
    ),
    Mistake(
        "bias_counted",
        "The gradient of a bias does not need the bias",
        "only input and weight count",
        lambda q: {q.right + q.width * q.size, q.right + q.width * 4},
    ),
    Mistake(
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
    Mistake(
        "output_counted",
        "The output is not needed: the weight's gradient needs the input, the input's gradient the weight",
        "count the input, and under autocast the weight's fp16 copy",
        lambda q: {base + q.elements * q.size for base in (q.right, _without_copy(q))},
    ),
    Mistake(
        "elements_not_bytes",
        "That counts numbers, not bytes",
        "times 4 in fp32, times 2 in fp16",
        lambda q: {q.numbers, q.elements, q.right - q.elements * (q.size - 1)},
    ),
)
_RELU = (
    Mistake(*_NOT_A_MASK, lambda q: {q.elements}),
    Mistake(*_NOT_A_MASK_OF_BITS, lambda q: {-(-q.elements // 8)}),
    _AUTOCAST_FORGOTTEN,
    _ONE_IS_ENOUGH,
    Mistake(
        "mask_counted",
        "No mask is kept beside it: the output itself tells which elements were let through",
        "count the output alone",
        lambda q: {q.right + q.elements, q.right + -(-q.elements // 8)},
    ),
)
_GELU = (Mistake(*_NOT_A_MASK, lambda q: {q.elements}), _AUTOCAST_FORGOTTEN, _ONE_IS_ENOUGH)
_LAYER_NORM = (
    Mistake(
        "statistics_in_half",
        "It computes in fp32 under autocast too, and its mean and inverse deviation of each token are fp32",
        "add two fp32 numbers per token",
        _under_autocast(lambda q: {q.right - 4 * q.tokens}),
    ),
    Mistake(
        "statistics_forgotten",
        "Backward also needs the mean and the inverse deviation of each token",
        "add two fp32 numbers per token",
        lambda q: {q.right - 4 * q.tokens, q.right - 8 * q.tokens},
    ),
    Mistake(
        "statistics_per_feature",
        "It normalises each token: there is one mean and one inverse deviation per token, not per feature",
        "two fp32 numbers for each of the tokens, however wide they are",
        lambda q: {q.right + (q.width - q.tokens) * 8, q.elements * 4 + q.width * 4},
    ),
    Mistake(
        "parameters_counted",
        "Its weight and bias are parameters: they are there anyway, and saving them costs nothing",
        "count the input and the statistics",
        lambda q: {q.right + q.width * each for each in (q.size, 4, 2 * q.size, 8)},
    ),
    _fp32_list(
        "its input is cast to fp32",
        lambda q: {q.elements * 2 + each * q.tokens for each in (0, 2, 4, 8)},
    ),
    _EXTRA_COPY,
    Mistake(
        "output_counted",
        "The output is not needed: input, mean and inverse deviation are enough",
        "count each element once",
        lambda q: {q.right + q.elements * q.size, q.right + q.elements * 4},
    ),
)
_SOFTMAX = (
    Mistake(*_NOT_A_MASK, lambda q: {q.elements}),
    _fp32_list("autocast sets its dtype argument to fp32", lambda q: {q.right // 2}),
    _EXTRA_COPY,
    _ONE_IS_ENOUGH,
    Mistake(
        "statistics_counted",
        "The maximum or the sum of each token is not kept: the output is enough",
        "count the output alone",
        lambda q: {q.right + each * q.tokens for each in (q.size, 4, 2 * q.size, 8)},
    ),
)
_DROPOUT = (
    Mistake(
        "mask_follows_autocast",
        "A mask holds no numbers that autocast could make smaller: a bool takes one byte in any precision",
        "one byte per element, in any precision",
        _under_autocast(lambda q: {q.right // 2}),
    ),
    Mistake(
        "mask_not_one_byte",
        "A GPU keeps which elements were dropped, nothing else, and a bool takes one byte",
        "one byte per element, in any precision",
        lambda q: {q.right * 2, q.right * 4},
    ),
    Mistake(
        "mask_not_one_byte",
        "PyTorch does not pack eight bools into a byte",
        "one byte per element",
        lambda q: {q.elements // 8, -(-q.elements // 8)},
    ),
    Mistake(
        "mask_and_activation",
        "A GPU keeps the mask alone: a gradient passes where the mask is set, whatever came in or went out",
        "one byte per element, in any precision",
        lambda q: {q.right + q.elements * q.size, q.right + q.elements * 4},
    ),
)
OF_LAYER: dict[str, tuple[Mistake, ...]] = {
    "linear": _LINEAR,
    "relu": _RELU,
    "gelu": _GELU,
    "layer_norm": _LAYER_NORM,
    "softmax": _SOFTMAX,
    "dropout": _DROPOUT,
}
OF_ANY_LAYER = (
    Mistake(
        "nothing_kept",
        "Its gradient cannot be computed from nothing",
        "what does its derivative need?",
        lambda q: {0},
    ),
    Mistake(
        "half_without_autocast",
        "Without autocast nothing is cast to half precision",
        "four bytes per number in fp32",
        lambda q: set() if q.autocast else {q.right // 2},
    ),
    Mistake("bits_not_bytes", "That counts bits", "divide by 8", lambda q: {q.right * 8}),
)
SOMETHING_ELSE = Mistake(
    "wrong_bytes",
    "Ask what the derivative needs: input, output, or less",
    "write down what is kept, its number of elements, and the bytes of each",
    lambda q: set(),
)
