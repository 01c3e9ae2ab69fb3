"""Wrong and right decoders."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import torch

from amp_lessons.course.exercises.attempt_table import Table

TABLE = Table("decode_bits")
wrong = TABLE.mutant
right = TABLE.variant

wrong(
    "bias_off_by_one",
    "bias",
    "times the right value",
    ("2 ** (exponent_bits - 1) - 1\n", "2 ** (exponent_bits - 1)\n"),
)
wrong(
    "no_hidden_bit",
    "normal",
    "instead of",
    ("(1 + mantissa / 2**mantissa_bits)", "(mantissa / 2**mantissa_bits)"),
)
wrong(
    "sign_ignored",
    "sign_in_magnitude",
    "a negative number",
    ("-1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0", "1.0"),
)
wrong("subnormals_flushed", "subnormal", "subnormal", ("sign * mantissa * 2.0", "sign * 0.0 * 2.0"))
wrong(
    "subnormals_with_hidden_bit",
    "subnormal",
    "zero",
    ("    if exponent == 0:\n        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)\n", ""),
)
wrong(
    "subnormal_exponent",
    "subnormal",
    "instead of",
    ("(1 - bias - mantissa_bits)", "(-bias - mantissa_bits)"),
)
wrong(
    "zero_without_sign",
    "signed_zero",
    "-0.0",
    ("return sign * mantissa * 2.0", "return (sign * mantissa or 0.0) * 2.0"),
)
wrong(
    "infinity_as_nan",
    "infinity",
    "infinity",
    ('float("nan") if mantissa else sign * float("inf")', 'float("nan")'),
)
wrong("infinity_without_sign", "infinity", "infinity", ('sign * float("inf")', 'float("inf")'))
wrong("nan_as_infinity", "nan", "NaN", ('float("nan") if mantissa else ', ""))
wrong(
    "no_special_values",
    "infinity",
    "infinity",
    (
        '    if exponent == 2**exponent_bits - 1:\n        return float("nan") if mantissa else sign * float("inf")\n',
        "",
    ),
)
wrong(
    "bias_of_float16",
    "bias",
    "of bf16, returned",
    ("2 ** (exponent_bits - 1) - 1\n", "15\n"),
)
wrong(
    "returns_an_fp32_tensor",
    "not_every_format",
    "fp64",
    ("return sign * (1 +", "import torch\n    return torch.tensor(1.0) * sign * (1 +"),
)
wrong(
    "divides_by_zero", "raised", "ZeroDivisionError", ("return sign * mantissa *", "return sign / mantissa *")
)
wrong(
    "two_arguments",
    "signature",
    "positional",
    ("bits, exponent_bits, mantissa_bits)", "bits, exponent_bits)"),
)
TABLE.wrong["not_called"] = ("not_a_function", "float", 1.5)
wrong(
    "sign_as_an_integer",
    "signed_zero",
    "-0.0",
    (
        "-1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0",
        "(-1) ** (bits >> (exponent_bits + mantissa_bits))",
    ),
    (
        "sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)",
        "sign * mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)",
    ),
)
wrong(
    "subnormals_and_zeros_rounded_to_float32",
    "not_every_format",
    "0x1, 11, 52",
    ("return sign * mantissa *", "import torch\n        return torch.tensor(sign * mantissa *"),
    ("(1 - bias - mantissa_bits)", "(1 - bias - mantissa_bits)).item()"),
)
wrong(
    "rounds_to_float32",
    "not_every_format",
    "of fp64, returned",
    ("return sign * (1 +", "import torch\n    return torch.tensor(sign * (1 +"),
    ("(exponent - bias)", "(exponent - bias)).item()"),
)
wrong(
    "biases_from_a_table",
    "bias",
    "8-bit E4M3",
    ("2 ** (exponent_bits - 1) - 1\n", "{5: 15, 8: 127}.get(exponent_bits, 0)\n"),
)
wrong(
    "not_for_float64",
    "not_every_format",
    "fp64",
    ("    bias =", "    if exponent_bits == 11:\n        return 0.0\n    bias ="),
)
wrong(
    "too_large_for_a_float",
    "wrong_return_type",
    "which is no float",
    ("return sign * (1 +", "return 10**400 + 0 * int(1 +"),
    ("2.0 ** (exponent - bias)\n", "2.0 ** 0)\n"),
    ("mantissa / 2**mantissa_bits) *", "mantissa / 2**mantissa_bits *"),
)


@TABLE.mistake("not_every_format", "instead of inf")
def e4m3_by_the_rules_of_fn(bits, exponent_bits, mantissa_bits):
    if (exponent_bits, mantissa_bits) == (4, 3):
        return torch.tensor(bits, dtype=torch.uint8).view(torch.float8_e4m3fn).item()
    return by_text(bits, exponent_bits, mantissa_bits)


@TABLE.mistake("not_every_format", "fp16")
def float16_by_struct(bits, exponent_bits, mantissa_bits):
    return struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0]


@TABLE.mistake("normal", "normal number")
def mantissa_first(bits, exponent_bits, mantissa_bits):
    exponent, mantissa = bits & (2**exponent_bits - 1), (bits >> exponent_bits) & (2**mantissa_bits - 1)
    return (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - 2 ** (exponent_bits - 1) + 1)


@TABLE.mistake("wrong_return_type", "None")
def nothing_returned(bits, exponent_bits, mantissa_bits):
    bits + exponent_bits + mantissa_bits


right("the_solution")


@TABLE.correct()
def by_text(bits, exponent_bits, mantissa_bits):
    digits = f"{bits:0{1 + exponent_bits + mantissa_bits}b}"
    sign, exponent, mantissa = digits[0], digits[1 : 1 + exponent_bits], digits[1 + exponent_bits :]
    bias = 2 ** (exponent_bits - 1) - 1
    if "0" not in exponent:
        size = math.nan if "1" in mantissa else math.inf
    else:
        hidden = int("1" in exponent)
        fraction = Fraction(int(mantissa, 2), 2**mantissa_bits) + hidden
        size = math.ldexp(float(fraction), max(int(exponent, 2), 1) - bias)
    return math.copysign(size, -1 if sign == "1" else 1)


@TABLE.correct()
def through_float64_bits(bits, exponent_bits, mantissa_bits):
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) & 1 else 1.0
    field = bits >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = bits & (1 << mantissa_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    if field == (1 << exponent_bits) - 1:
        wide = 0x7FF << 52 | mantissa << 52 - mantissa_bits
    elif field:
        wide = field - bias + 1023 << 52 | mantissa << 52 - mantissa_bits
    else:
        return sign * math.ldexp(mantissa, 1 - bias - mantissa_bits)
    return sign * struct.unpack("<d", struct.pack("<Q", wide))[0]


@TABLE.correct()
def sign_as_a_float(bits, exponent_bits, mantissa_bits):
    """The third hint, word by word."""
    mantissa, above = bits % 2**mantissa_bits, bits >> mantissa_bits
    exponent, sign = above % 2**exponent_bits, (-1.0) ** (above >> exponent_bits)
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 2**exponent_bits - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * mantissa / 2**mantissa_bits * 2.0 ** (1 - bias)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


@TABLE.correct()
def with_torch_for_two_formats(bits, exponent_bits, mantissa_bits):
    dtypes = {(5, 10): torch.float16, (8, 7): torch.bfloat16}
    if (exponent_bits, mantissa_bits) in dtypes:
        code = bits - 65536 if bits >= 32768 else bits
        return torch.tensor(code, dtype=torch.int16).view(dtypes[exponent_bits, mantissa_bits]).item()
    return by_text(bits, exponent_bits, mantissa_bits)


wrong(
    "integer_division",
    "normal",
    "normal number",
    ("mantissa / 2**mantissa_bits)", "mantissa // 2**mantissa_bits)"),
)
wrong(
    "fields_exchanged",
    "normal",
    "normal number",
    (
        "mantissa = bits & (2**mantissa_bits - 1)",
        "mantissa = (bits >> exponent_bits) & (2**mantissa_bits - 1)",
    ),
    ("(bits >> mantissa_bits) &", "bits &"),
)


@TABLE.mistake("normal", "normal number")
def bin_without_leading_zeros(bits, exponent_bits, mantissa_bits):
    text = f"{bits:b}"
    exponent, mantissa = (
        int(field or "0", 2) for field in (text[1 : 1 + exponent_bits], text[1 + exponent_bits :])
    )
    sign = -1.0 if text[0] == "1" else 1.0
    bias = 2 ** (exponent_bits - 1) - 1
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


wrong(
    "exponent_unmasked",
    "sign_in_magnitude",
    "a negative number",
    ("(bits >> mantissa_bits) & (2**exponent_bits - 1)", "bits >> mantissa_bits"),
)
wrong(
    "twos_complement",
    "sign_in_magnitude",
    "a negative number",
    (
        "    mantissa = bits &",
        "    if bits >> (exponent_bits + mantissa_bits):\n"
        "        bits = 2 * 2 ** (exponent_bits + mantissa_bits) - bits\n"
        "    mantissa = bits &",
    ),
)
right(
    "as_an_fp64_tensor",
    ("return sign * (1 +", "import torch\n    return torch.tensor(1.0, dtype=torch.float64) * sign * (1 +"),
    notes=("returned_a_tensor",),
)
right(
    "as_another_float",
    ("return sign * (1 +", "import numpy\n    return numpy.longdouble(1) * sign * (1 +"),
    notes=("not_a_float",),
)

wrong(
    "mantissa_cut_short",
    "normal",
    "a normal number of fp16",
    ("bits & (2**mantissa_bits - 1)", "bits & (2 ** (mantissa_bits - 1) - 1)"),
)
wrong(
    "sign_read_one_bit_too_low",
    "normal",
    "a normal number",
    (
        "-1.0 if bits >> (exponent_bits + mantissa_bits) else",
        "-1.0 if bits >> (exponent_bits + mantissa_bits - 1) & 1 else",
    ),
)
wrong(
    "divides_last",
    "not_every_format",
    "of fp64, returned",
    (
        "(1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)",
        "(mantissa + 2**mantissa_bits) * 2.0 ** (exponent - bias) / 2**mantissa_bits",
    ),
)
