"""From bits to a value, by the rules that all IEEE formats share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any, NoReturn

import torch

from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises import bed
from amp_lessons.course.exercises.report.common_findings import float_in, number_in, remark_on_type

_FORMATS = {  # how many bits exponent and mantissa have; what the first asks is asked for what it is
    "fp16": (5, 10),
    "bf16": (8, 7),
    "8-bit E5M2": (5, 2),
    "8-bit E4M3 by IEEE rules": (4, 3),
    "a 6-bit format": (3, 2),
    "fp32": (8, 23),
    "fp64": (11, 52),
}
_CODES_PER_FORMAT = 500


def judge(worker: bed.Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the values of many codes, format by format, and hold them against exact arithmetic."""
    decode_bits = bed.function(worker, "decode_bits", 0, 5, 10)
    for name in _FORMATS:
        asked = codes(name, draw)
        answers = decode_bits.each([astuple(code)[:3] for code in asked], lambda at: f"for {asked[at]}")  # noqa: B023
        values = {code: _number(code, value) for code, value in zip(asked, answers, strict=True)}
        wrong = next((code for code in asked if not _same(values[code], code.value())), None)
        if wrong:
            _reject(wrong, values)
        for value in answers:
            yield from remark_on_type(value, float)
    yield passed("normal", "normal numbers, positive and negative")
    yield passed("special", "signed zeros, subnormal numbers, infinities and NaN")
    yield passed("any_format", "in every format tried: " + ", ".join(_FORMATS))


# --- codes of formats that follow the IEEE rules, what kind of number each stands for, and its exact value


@dataclass(frozen=True)
class Code:
    """A number as an integer: sign, exponent and mantissa, from the highest bit down."""

    bits: int
    exponent_bits: int
    mantissa_bits: int
    format: str

    def __str__(self) -> str:
        call = f"decode_bits(0x{self.bits:X}, {self.exponent_bits}, {self.mantissa_bits})"
        return f"{call}, {self.kind} of {self.format},"

    @property
    def fields(self) -> tuple[int, int, int]:
        """The sign, the exponent and the mantissa, each as an integer."""
        above, mantissa = divmod(self.bits, 2**self.mantissa_bits)
        return *divmod(above, 2**self.exponent_bits), mantissa

    @property
    def kind(self) -> str:
        """The kind of number, one of those in the table below."""
        sign, exponent, mantissa = self.fields
        if exponent == 2**self.exponent_bits - 1:
            return "a NaN" if mantissa else "an infinity"
        if exponent == 0:
            return "a subnormal number" if mantissa else "a zero"
        return "a negative number" if sign else "a normal number"

    def value(self) -> float:
        """Return the exact value."""
        sign, exponent, mantissa = self.fields
        if exponent == 2**self.exponent_bits - 1:
            size = math.nan if mantissa else math.inf
        else:
            bias, one = 2 ** (self.exponent_bits - 1) - 1, 2**self.mantissa_bits
            significand = mantissa + (one if exponent else 0)
            size = math.ldexp(significand, max(exponent, 1) - bias - self.mantissa_bits)
        return -size if sign else size


def codes(name: str, draw: torch.Generator) -> list[Code]:
    """Draw codes of every kind, the simplest kind first: of a small format all, of a large one some.

    They lie in equal steps, and next to where one kind ends and another begins.
    """
    exponent_bits, mantissa_bits = _FORMATS[name]
    sign, smallest_normal = 1 << (exponent_bits + mantissa_bits), 1 << mantissa_bits
    step, infinity = 2 * sign // _CODES_PER_FORMAT | 1, sign - smallest_normal  # odd: the lowest bits differ
    bits = {*range(int(torch.randint(step, (1,), generator=draw)), 2 * sign, step)}
    for edge in (0, 1, smallest_normal - 1, smallest_normal, infinity - 1, infinity, infinity + 1):
        bits |= {edge, sign + edge}
    found = [Code(each, exponent_bits, mantissa_bits, name) for each in sorted(bits)]
    return sorted(found, key=lambda code: [*_BY_KIND].index(code.kind))


def _same(value: float, right: float) -> bool:
    """Whether a value is this one, the sign of a zero included; any NaN is as good as another."""
    if math.isnan(right):
        return math.isnan(value)
    return value == right and math.copysign(1, value) == math.copysign(1, right)


# --- what is wrong with an answer

_BY_KIND = {  # the simplest kind first: the first that is wrong says what is to be done
    "a normal number": (
        "normal",
        "from the highest bit down: sign, exponent, mantissa; (1 + mantissa / 2**mantissa_bits) * 2.0 ** "
        "(exponent - bias), with / and not //",
    ),
    "a negative number": (
        "sign_in_magnitude",
        "the highest bit, above all of exponent and mantissa, is the sign: 1 means negative; clear it, and "
        "decode what is left as if positive",
    ),
    "a zero": ("signed_zero", "the sign bit alone is -0.0: 0 * -1.0 keeps it, and 0 * -1 is without a sign"),
    "a subnormal number": (
        "subnormal",
        "at exponent field 0 there is no hidden 1: exponent 1 - bias, not 0 - bias",
    ),
    "an infinity": ("infinity", "exponent field all ones and mantissa 0: inf, with the sign of the sign bit"),
    "a NaN": ("nan", "an exponent field of all ones with a mantissa other than 0 is NaN"),
}


def _number(code: Code, returned: Any) -> float:
    """Return the number in what was returned for a code; reject what is none, or none that a float can be."""
    value = float_in(returned)
    if value is None or (math.isinf(value) and number_in(returned) != value):
        message = f"{code} returned {bed.described(returned)}, which is no float"
        bed.reject("wrong_return_type", message, "compute with floats, as in 2.0 ** (exponent - bias)")
    return value


def _reject(wrong: Code, values: dict[Code, float]) -> NoReturn:
    """Name the mistake that makes the answers for all codes of this kind, or say what the kind asks for."""
    value, right, kind = values[wrong], wrong.value(), wrong.kind
    message = f"{wrong} returned {value!r} instead of {right!r}"
    factor = value / right if right else 0.0
    alike = all(_same(values[each], factor * each.value()) for each in values if each.kind == kind)
    if kind == "a normal number" and alike and math.frexp(factor)[0] == 0.5:
        hint = "the bias is 2 ** (exponent_bits - 1) - 1, that is 15 for fp16"
        bed.reject("bias", f"{message}: every normal number is {factor:g} times the right value", hint)
    if wrong.format != next(iter(_FORMATS)):
        hint = (
            "derive bias, masks and largest exponent from exponent_bits and mantissa_bits, for E4M3 too, and "
            "compute with Python's floats, which hold 64 bits: torch.tensor rounds them to fp32, and in fp64 "
            "a significand not yet divided by 2**mantissa_bits may overflow, or its power of two be 0: "
            "math.ldexp takes both at once"
        )
        bed.reject("not_every_format", f"{message}; fp16 came out right", hint)
    # a zero that is not zero: a hidden 1 was added to an exponent field of 0, and no sign is wrong yet
    added = kind == "a zero" and value != 0
    code, hint = _BY_KIND["a subnormal number" if added else kind]
    bed.reject(code, message, hint)
