"""Wrong and right predictions of what a layer keeps."""

from __future__ import annotations

from numbers import Integral

import numpy as np
import torch

from amp_lessons.course.exercises import shelf
from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("activation_bytes")
wrong = TABLE.mutant
right = TABLE.variant
ANSWER = shelf.find("activation_bytes").solution


@Integral.register
class Whole:
    """An integer of a type of its own."""

    def __init__(self, value):
        self.value = value

    def __int__(self):
        return self.value


WEIGHT_COPY = "(width * width * 2 if autocast else 0)"
LAYER_NORM = "elements * 4 + 2 * tokens * 4"
SOFTMAX = "return elements * 4  # its output"
MASK = "return elements  # dropout"

wrong(
    "no_weight_copy",
    "wrong_bytes",
    "for each of the input's",
    (" + " + WEIGHT_COPY, ""),
)
wrong("weight_always", "wrong_bytes", "for each of the input's", (WEIGHT_COPY, "width * width * size"))
wrong(
    "weight_and_bias",
    "wrong_bytes",
    "for each of the input's",
    (WEIGHT_COPY, "(width * width + width) * 4"),
)
wrong(
    "tokens_in_the_copy",
    "wrong_bytes",
    "for each of the input's",
    (WEIGHT_COPY, "(elements * 2 * autocast)"),
)
wrong(
    "bias_copy",
    "wrong_bytes",
    "for each of the input's",
    (WEIGHT_COPY, "((width * width + width) * 2 if autocast else 0)"),
)
wrong("no_statistics", "wrong_bytes", "for each of the input's", (LAYER_NORM, "elements * 4"))
wrong(
    "only_the_mean",
    "wrong_bytes",
    "for each of the input's",
    (LAYER_NORM, "elements * 4 + tokens * 4"),
)
wrong(
    "layer_norm_in_half",
    "wrong_bytes",
    "for each of the input's",
    (LAYER_NORM, "elements * size + 8 * tokens"),
)
wrong(
    "softmax_in_half",
    "wrong_bytes",
    "for each of the input's",
    (SOFTMAX, "return elements * size  # its output"),
)
wrong(
    "mask_as_activation",
    "wrong_bytes",
    "for each of the input's",
    (MASK, "return elements * size  # dropout"),
)
wrong(
    "mask_as_bits",
    "wrong_bytes",
    "for each of the input's",
    (MASK, "return elements // 8  # dropout"),
)
wrong("no_autocast", "wrong_bytes", "for each of the input's", ("2 if autocast else 4", "4"))
wrong("always_half", "wrong_bytes", "for each of the input's", ("2 if autocast else 4", "1"))
wrong(
    "both_sides",
    "wrong_bytes",
    "for each of the input's",
    ("elements * size  # the", "2 * elements * size  # the"),
)
wrong(
    "nothing_for_relu",
    "wrong_bytes",
    "for each of the input's",
    ('("relu", "gelu")', '("relu",)'),
    (MASK, "return 0  # dropout"),
)
wrong("unknown_layer", "raised", "ValueError", (MASK, 'raise ValueError("dropout?")  # dropout'))
wrong("bytes_forgotten", "not_bytes", "None", (MASK, "return None  # dropout"))


LINEAR = "return elements * size + (width"
RELU_GELU = "return elements * size  # the output"
RELU = """if layer == "relu":
            return {}
        return elements * size  # the output"""


def relu(name, code, word, expression):
    wrong(name, code, word, (RELU_GELU, RELU.format(expression)))


relu("relu_by_a_mask", "wrong_bytes", "for each of the input's", "elements")
relu("relu_by_bits", "wrong_bytes", "for each of the input's", "elements // 8")
relu("relu_and_mask", "wrong_bytes", "for each of the input's", "elements * size + elements")
relu("relu_both", "wrong_bytes", "for each of the input's", "2 * elements * size")
relu("relu_in_fp32", "wrong_bytes", "for each of the input's", "elements * 4")
relu("relu_in_half", "wrong_bytes", "for each of the input's", "elements * 2")
wrong("linear_both", "wrong_bytes", "for each of the input's", (LINEAR, "return 2 * " + LINEAR[7:]))
wrong(
    "linear_in_fp32",
    "wrong_bytes",
    "for each of the input's",
    (LINEAR, "return elements * 4 + (width"),
)
wrong(
    "weight_copy_in_fp32",
    "wrong_bytes",
    "for each of the input's",
    (WEIGHT_COPY, "(width**2 * 4 * autocast)"),
)
wrong(
    "gelu_by_a_mask",
    "wrong_bytes",
    "for each of the input's",
    (RELU_GELU, "return elements  # the output"),
)


def layer_norm(name, code, word, expression):
    wrong(name, code, word, (LAYER_NORM, expression))


layer_norm("statistics_per_width", "wrong_bytes", "for each of the input's", "elements * 4 + 2 * width * 4")
layer_norm(
    "statistics_in_fp16",
    "wrong_bytes",
    "for each of the input's",
    "elements * 4 + 2 * tokens * size",
)
layer_norm("norm_weights", "wrong_bytes", "for each of the input's", "elements * 4 + 8 * tokens + 8 * width")
layer_norm(
    "norm_weight", "wrong_bytes", "for each of the input's", "elements * 4 + 8 * tokens + width * size"
)
layer_norm(
    "norm_copy",
    "wrong_bytes",
    "for each of the input's",
    "elements * (6 if autocast else 4) + 8 * tokens",
)
layer_norm("norm_output", "wrong_bytes", "for each of the input's", "elements * 8 + 8 * tokens")


def softmax(name, code, word, expression):
    wrong(name, code, word, (SOFTMAX, f"return {expression}  # its output"))


softmax("softmax_copy", "wrong_bytes", "for each of the input's", "elements * (6 if autocast else 4)")
softmax("softmax_by_a_mask", "wrong_bytes", "for each of the input's", "elements")
softmax("softmax_both", "wrong_bytes", "for each of the input's", "elements * 8")
softmax("softmax_sums", "wrong_bytes", "for each of the input's", "elements * 4 + tokens * 4")


def dropout(name, code, word, expression):
    wrong(name, code, word, (MASK, f"return {expression}  # dropout"))


dropout(
    "mask_halved",
    "wrong_bytes",
    "for each of the input's",
    "elements // 2 if autocast else elements",
)
dropout("mask_and_output", "wrong_bytes", "for each of the input's", "elements + elements * size")
dropout("mask_of_floats", "wrong_bytes", "for each of the input's", "elements * 4")
dropout("dropout_keeps_nothing", "wrong_bytes", "for each of the input's", "0")
dropout("dropout_in_words", "not_bytes", "bool", "True")


@TABLE.mistake("wrong_bytes", "linear under fp16 autocast")
def swapped(layer, tokens, width, autocast):
    return ANSWER(layer, width, tokens, autocast)


@TABLE.mistake("wrong_bytes", "under fp16 autocast")
def without_autocast(layer, tokens, width, autocast):
    return ANSWER(layer, tokens, width, False)


@TABLE.mistake("wrong_bytes", "linear in fp32")
def the_other_way_round(layer, tokens, width, autocast):
    return ANSWER(layer, tokens, width, not autocast)


@TABLE.mistake("wrong_bytes", "under fp16 autocast")
def halved(layer, tokens, width, autocast):
    return ANSWER(layer, tokens, width, False) // (2 if autocast else 1)


@TABLE.mistake("wrong_bytes", "linear in fp32")
def numbers(layer, tokens, width, autocast):
    extra = {"linear": width**2 * autocast, "layer_norm": 2 * tokens}
    return tokens * width + extra.get(layer, 0)


@TABLE.mistake("wrong_bytes", "linear in fp32")
def bits(layer, tokens, width, autocast):
    return 8 * ANSWER(layer, tokens, width, autocast)


@TABLE.mistake("wrong_bytes", "for each of the input's")
def one_more(layer, tokens, width, autocast):
    return ANSWER(layer, tokens, width, autocast) + 1


@TABLE.mistake("not_bytes", "str")
def in_words(layer, tokens, width, autocast):
    return f"{ANSWER(layer, tokens, width, autocast)} B"


@TABLE.mistake("not_bytes", "float")
def in_kilobytes(layer, tokens, width, autocast):
    return ANSWER(layer, tokens, width, autocast) / 1000


@TABLE.mistake("signature", "4 positional")
def without_precision(layer, tokens, width):
    return 0


right("the_solution")
right("as_a_float", (MASK, "return float(elements)  # dropout"), notes=("not_an_int",))
right(
    "as_numpy_float", (MASK, "return __import__('numpy').float32(elements)  # dropout"), notes=("not_an_int",)
)


@TABLE.correct("not_an_int")
def as_numpy(layer, tokens, width, autocast):
    return np.int64(ANSWER(layer, tokens, width, autocast))


@TABLE.correct("returned_a_tensor")
def as_a_tensor(layer, tokens, width, autocast):
    return torch.tensor(ANSWER(layer, tokens, width, autocast))


@TABLE.correct("returned_a_tensor")
def as_a_float_tensor(layer, tokens, width, autocast):
    return torch.tensor([float(ANSWER(layer, tokens, width, autocast))])


@TABLE.correct("not_an_int")
def as_another_integral(layer, tokens, width, autocast):
    return Whole(ANSWER(layer, tokens, width, autocast))


@TABLE.correct()
def by_table(layer, tokens, width, autocast):
    half = 2 if autocast else 4
    per_element = {"linear": half, "relu": half, "gelu": half, "layer_norm": 4, "softmax": 4, "dropout": 1}
    extra = {"linear": 2 * width**2 * autocast, "layer_norm": 8 * tokens}
    return per_element[layer] * tokens * width + extra.get(layer, 0)


@TABLE.correct()
def by_empty_tensors(layer, tokens, width, autocast):
    def nbytes(dtype, *shape):
        return torch.empty(shape, dtype=dtype, device="meta").nbytes

    arrives = torch.float16 if autocast else torch.float32
    match layer:
        case "linear":
            return nbytes(arrives, tokens, width) + (nbytes(arrives, width, width) if autocast else 0)
        case "layer_norm":
            return nbytes(torch.float32, tokens, width) + 2 * nbytes(torch.float32, tokens, 1)
        case "softmax":
            return nbytes(torch.float32, tokens, width)
        case "dropout":
            return nbytes(torch.bool, tokens, width)
    return nbytes(arrives, tokens, width)


@TABLE.correct()
def by_hooks(layer, tokens, width, autocast):
    """Watch what autograd saves on tensors without data; dropout by its CUDA kernel."""
    dtype = torch.float16 if autocast else torch.float32
    x = torch.empty(tokens, width, dtype=dtype, device="meta", requires_grad=True)
    wide = x.float() if layer in ("layer_norm", "softmax") else x
    weight = torch.empty(width, width, device="meta", requires_grad=True)
    run = {
        "linear": lambda: torch.nn.functional.linear(x, weight.to(dtype)),
        "relu": lambda: torch.relu(x),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "layer_norm": lambda: torch.nn.functional.layer_norm(wide, (width,)),
        "softmax": lambda: wide.softmax(-1),
        "dropout": lambda: torch.native_dropout(x, 0.1, True),
    }[layer]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        run()
    parameter = weight.untyped_storage()._cdata
    return sum(t.nbytes for t in kept if t.untyped_storage()._cdata != parameter)
