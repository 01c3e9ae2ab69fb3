"""Wrong and right ways to the exponent that a block shares."""

from __future__ import annotations

import math

import torch

from amp_lessons.course.exercises.attempt_table import Table
from amp_lessons.formats import FORMATS

TABLE = Table("mx_scale")
wrong = TABLE.mutant
right = TABLE.variant

AMAX = "block.abs().max().item()"
FREXP = "    fraction, exponent = math.frexp(amax / 448)\n"
RETURN = "    return max(exponent - (fraction == 0.5), -127)\n"
NOT_FINITE = "    if not math.isfinite(amax):\n        return 128\n"


def of(expression: str) -> tuple[str, str]:
    """Return the change that makes ``expression`` the exponent, of an amax that is not zero."""
    return (FREXP + RETURN, f"    return max({expression}, -127) if amax else 0\n")


wrong(
    "floor_of_the_standard",
    "saturates",
    "lands at 500, above 448",
    of("math.floor(math.log2(amax)) - 8"),
)
wrong("floor_of_the_quotient", "saturates", "lands at 878", of("math.floor(math.log2(amax / 448))"))
wrong("nearest", "saturates", "lands at 600, above 448", of("round(math.log2(amax / 448))"))
wrong("ceiling_of_amax", "range_unused", "lands at 219", of("math.ceil(math.log2(amax)) - 8"))
wrong("truncated", "saturates", "lands at", of("int(math.log2(amax / 448))"))
wrong("floor_plus_one", "one_too_many", "448", of("math.floor(math.log2(amax / 448)) + 1"))
wrong("frexp_as_it_is", "one_too_many", "448", (" - (fraction == 0.5)", ""))
wrong("two_more", "range_unused", "lands at", of("math.ceil(math.log2(amax / 448)) + 2"))
wrong("limit_of_e5m2", "saturates", "lands at", ("448", "57344"))
wrong("limit_of_512", "saturates", "500", ("448", "512"))
wrong("limit_of_480", "saturates", "480", ("448", "480"))
wrong("limit_of_240", "range_unused", "-12 is the smallest exponent", ("448", "240"))
wrong(
    "inverse",
    "range_unused",
    "-12 is the smallest exponent",
    ("return max(exponent - (fraction == 0.5), -127)", "return -max(exponent - (fraction == 0.5), -127)"),
)
wrong(
    "the_code",
    "range_unused",
    "-12 is the smallest exponent",
    (RETURN, "    return max(exponent - (fraction == 0.5), -127) + 127\n"),
)
wrong(
    "the_scale",
    "wrong_return_type",
    "an int was expected, not float",
    (RETURN, "    return 2.0 ** max(exponent - (fraction == 0.5), -127)\n"),
)
wrong("signs_forgotten", "saturates", "negative", (AMAX, "block.max().item()"))
wrong("mean_decides", "saturates", "lands at", (AMAX, "block.abs().mean().item()"))
wrong("first_decides", "saturates", "lands at", (AMAX, "block[-1].abs().item() or 1.0"))
wrong(
    "zero_breaks",
    "raised",
    "a block of zeros",
    (FREXP + RETURN, "    return max(math.ceil(math.log2(amax / 448)), -127)\n"),
)
wrong(
    "zero_is_nan",
    "zero_amax",
    "128",
    (NOT_FINITE, "    if not math.isfinite(amax) or amax == 0:\n        return 128\n"),
)
wrong(
    "no_lower_end",
    "outside_e8m0",
    "from -127",
    ("max(exponent - (fraction == 0.5), -127)", "exponent - (fraction == 0.5)"),
)
wrong(
    "inf_as_the_largest",
    "inf_hidden",
    "with inf",
    (NOT_FINITE, "    if not math.isfinite(amax):\n        return 127\n"),
)
wrong("inf_raises", "raised", "with inf", (NOT_FINITE, ""), of("math.ceil(math.log2(amax / 448))"))
wrong(
    "nan_left_out",
    "inf_hidden",
    "NaN",
    (NOT_FINITE, "    if not math.isfinite(amax):\n        return 128 if amax == math.inf else 0\n"),
)
wrong(
    "computed_in_fp16",
    "saturates",
    "fp16 up to 3e-5",
    (AMAX, "(block.abs().max() / 448).item()"),
    ("amax / 448", "amax"),
)
wrong(
    "per_element",
    "wrong_return_type",
    "shape (32,)",
    (FREXP + RETURN, "    return (block.abs() / 448).log2().ceil()\n"),
)
wrong("in_place", "inputs_changed", "in place", ("block.abs()", "block.abs_()"))
wrong("nothing_returned", "wrong_return_type", "None", (RETURN, ""))


right("the_solution")
right("ceiling_of_the_logarithm", of("math.ceil(math.log2(amax / 448))"))
right("as_a_float", of("float(math.ceil(math.log2(amax / 448)))"), notes=("not_an_int",))
right("zeros_as_the_standard_has_them", (NOT_FINITE, f"{NOT_FINITE}    if amax == 0:\n        return -127\n"))
right("one_step_of_grace", ("448", "464"), notes=("rounds_to_the_largest",))


@TABLE.correct()
def by_trying(block):
    amax = block.double().abs().max()
    if not amax.isfinite():
        return 128
    return next(k for k in range(-127, 128) if amax * 2.0**-k <= 448)


@TABLE.correct("rounds_to_the_largest")
def by_the_cast(block):
    """Asks the format whether a number is rounded within half a step."""
    amax = block.double().abs().max().item()
    if not math.isfinite(amax):
        return 128
    e4m3 = FORMATS["fp8_e4m3"]
    return next(k for k in range(-127, 128) if not e4m3.overflows(math.ldexp(amax, -k)))


@TABLE.correct("returned_a_tensor")
def in_tensors(block):
    amax = block.float().abs().max()
    if not amax.isfinite():
        return torch.tensor(128)
    bits = (amax / 448).clamp(min=2.0**-126).view(torch.int32)
    rounded_up = (bits + 0x7FFFFF) >> 23
    return torch.where(amax < 448 * 2.0**-127, torch.tensor(-127), rounded_up - 127)


@TABLE.correct()
def floor_and_a_comparison(block):
    amax = float(block.abs().max())
    if math.isnan(amax) or math.isinf(amax):
        return 128
    if amax == 0:
        return 0
    exponent = math.floor(math.log2(amax)) - 8
    return max(exponent + (amax > 448 * 2.0**exponent), -127)


@TABLE.correct()
def by_its_bits(block):
    """The exponent of fp32, and one more where the mantissa lies above 448's."""
    bits = int(block.float().abs().max().view(torch.int32)) & 0x7FFFFFFF
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    return 128 if exponent == 255 else max(exponent - 127 - 8 + (mantissa > 0x600000), -127)


@TABLE.mistake("one_too_many", "448 times 2 to the power of")
def logarithms_in_fp32(block):
    amax = block.float().abs().max()
    if not amax.isfinite():
        return 128
    return max(-127, int(torch.ceil(torch.log2(amax) - torch.log2(torch.tensor(448.0))))) if amax else 0
