"""From bits to a value, by the rules that all IEEE formats share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

import torch

from amp_lessons._base.worker.client import Worker
from amp_lessons.audit.findings import Finding, passed
from amp_lessons.course.exercises.attempt import reject
from amp_lessons.course.exercises.bed import LearnersFunction, described, function
from amp_lessons.course.exercises.report.common_findings import float_in, number_in, remark_on_type

# --- codes of formats that follow the IEEE rules, what kind of number each stands for, and its exact value

Kind = Literal["normal", "negative", "zero", "subnormal", "infinity", "nan"]
KINDS: tuple[Kind, ...] = ("normal", "negative", "zero", "subnormal", "infinity", "nan")
_CODES_PER_FORMAT = 500


@dataclass(frozen=True)
class Format:
    """A floating point format by the IEEE rules, called ``name``."""

    exponent_bits: int
    mantissa_bits: int
    name: str


@dataclass(frozen=True)
class Code:
    """A number of a format as an integer: sign, exponent and mantissa, from the highest bit down."""

    bits: int
    format: Format

    @property
    def arguments(self) -> tuple[int, int, int]:
        """What the learner's function is called with."""
        return self.bits, self.format.exponent_bits, self.format.mantissa_bits

    @property
    def fields(self) -> tuple[int, int, int]:
        """The sign, the exponent and the mantissa, each as an integer."""
        above, mantissa = divmod(self.bits, 2**self.format.mantissa_bits)
        sign, exponent = divmod(above, 2**self.format.exponent_bits)
        return sign, exponent, mantissa

    @property
    def kind(self) -> Kind:
        """The kind of number; ``negative`` is a normal number with the sign bit set."""
        sign, exponent, mantissa = self.fields
        if exponent == 2**self.format.exponent_bits - 1:
            return "nan" if mantissa else "infinity"
        if exponent == 0:
            return "subnormal" if mantissa else "zero"
        return "negative" if sign else "normal"

    @property
    def value(self) -> float:
        """The exact value, of every format whose values fit a Python float."""
        if self.kind in ("infinity", "nan"):
            size = math.inf if self.kind == "infinity" else math.nan
        else:
            size = self._finite_size
        return -size if self.fields[0] else size

    @property
    def _finite_size(self) -> float:
        _, exponent, mantissa = self.fields
        bias = 2 ** (self.format.exponent_bits - 1) - 1
        hidden = 2**self.format.mantissa_bits if exponent else 0
        return math.ldexp(hidden + mantissa, max(exponent, 1) - bias - self.format.mantissa_bits)

    @property
    def call(self) -> str:
        """The call that decodes it, as a learner would write it."""
        return f"decode_bits(0x{self.bits:X}, {self.format.exponent_bits}, {self.format.mantissa_bits})"

    @property
    def noun(self) -> str:
        """What the code stands for, in words: "a subnormal number of fp16"."""
        nouns = {"infinity": "an infinity", "nan": "a NaN", "zero": "a zero"}
        return f"{nouns.get(self.kind, f'a {self.kind} number')} of {self.format.name}"


def codes(number_format: Format) -> list[Code]:
    """List codes of every kind, the simplest kind first: of a small format all, of a large one some."""
    found = [Code(bits, number_format) for bits in sorted(set(_bits(number_format)))]
    return sorted(found, key=lambda code: KINDS.index(code.kind))


def _bits(number_format: Format) -> Iterator[int]:
    """Yield integers in equal steps, then those next to where one kind ends and another begins."""
    sign = 1 << (number_format.exponent_bits + number_format.mantissa_bits)
    yield from range(0, 2 * sign, 2 * sign // _CODES_PER_FORMAT | 1)  # odd, so that the lowest bits differ
    infinity = sign - 2**number_format.mantissa_bits
    smallest_normal = 2**number_format.mantissa_bits
    for edge in (0, 1, smallest_normal - 1, smallest_normal, infinity - 1, infinity, infinity + 1):
        yield from (edge, sign + edge)


# --- the check

_FIRST = Format(5, 10, "fp16")
_E4M3 = Format(4, 3, "8-bit E4M3 by IEEE rules")
_FORMATS = (
    _FIRST,
    Format(8, 7, "bf16"),
    Format(5, 2, "8-bit E5M2"),
    _E4M3,
    Format(3, 2, "a 6-bit format"),
    Format(8, 23, "fp32"),
    Format(11, 52, "fp64"),
)


def judge(worker: Worker, draw: torch.Generator) -> Iterator[Finding]:
    """Ask for the values of many codes, format by format, and hold them against exact arithmetic."""
    decode_bits = function(worker, "decode_bits", 0, 5, 10)
    remarks: list[Finding] = []
    for number_format in _FORMATS:
        answers = _answers(decode_bits, codes(number_format))
        for answer in answers:
            _require_number(answer)
            if not answer.is_right:
                _reject_wrong(answer, answers)
            remarks += remark_on_type(answer.returned, float)
    yield passed("normal", "normal numbers, positive and negative")
    yield passed("special", "signed zeros, subnormal numbers, infinities and NaN")
    yield passed("any_format", "in every format tried: " + ", ".join(each.name for each in _FORMATS))
    yield from remarks


@dataclass(frozen=True)
class DecodedCode:
    """What a learner's function returns for a code; ``value`` is the number in it, NaN if there is none."""

    code: Code
    returned: Any
    value: float

    @cached_property
    def right(self) -> float:
        """The value that the code has."""
        return self.code.value

    @property
    def is_right(self) -> bool:
        """Whether the value is right, the sign of a zero included."""
        if math.isnan(self.right):
            return math.isnan(self.value)
        return self.value == self.right and math.copysign(1, self.value) == math.copysign(1, self.right)

    @property
    def case(self) -> str:
        """The code, the value that was returned for it, and the right one, as a message says it."""
        return f"{self.code.call} returned {self.value!r} instead of {self.right!r}, {self.code.noun}"


def _answers(decode_bits: LearnersFunction, asked: list[Code]) -> list[DecodedCode]:
    """Decode all codes in one go: a call of the worker takes longer than decoding."""
    returned = decode_bits.each(
        [code.arguments for code in asked], lambda at: f"for {asked[at].call}, {asked[at].noun}"
    )
    return [_answer(code, value) for code, value in zip(asked, returned, strict=True)]


def _answer(code: Code, returned: Any) -> DecodedCode:
    value = float_in(returned)
    return DecodedCode(code, returned, math.nan if value is None else value)


def _require_number(answer: DecodedCode) -> None:
    call, number = answer.code.call, number_in(answer.returned)
    if number is None:
        reject(
            "wrong_return_type",
            f"{call} returned {described(answer.returned)}, not a float",
            "return a Python float",
        )
    if math.isinf(answer.value) and number != answer.value:
        reject(
            "too_large_for_a_float",
            f"{call} returned a number too large for a float instead of {answer.right!r}",
            "compute with floats, as in 2.0 ** (exponent - bias)",
        )


def _reject_wrong(answer: DecodedCode, answers: list[DecodedCode]) -> NoReturn:
    """Name the mistake behind a wrong answer, where the others of its format tell more about it."""
    if answer.code.format != _FIRST:
        _reject_another_format(answer, answers)
    if answer.code.kind in ("normal", "negative"):
        _reject_if_sign_bit_misread(answer)
    if answer.code.kind == "normal":
        _reject_if_systematic(answer, answers)
    if answer.code.kind == "subnormal" and answer.value in (2 * answer.right, answer.right / 2):
        reject(
            "subnormal_exponent",
            f"{answer.case}: off by a factor of two",
            "the exponent of a subnormal is 1 - bias, not 0 - bias",
        )
    # a zero that is not zero: a hidden 1 was added to an exponent field of 0, and no sign is wrong yet
    kind = "subnormal" if answer.code.kind == "zero" and answer.value != 0 else answer.code.kind
    code, hint = _BY_KIND[kind]
    reject(code, answer.case, hint)


_BY_KIND = {
    "normal": (
        "normal",
        "sign, exponent and mantissa lie in this order, from the highest bit down; bin() leaves leading "
        "zeros out",
    ),
    "negative": (
        "sign_in_magnitude",
        "the sign bit decides the sign and nothing else: clear it, and decode what is left as if it were "
        "positive",
    ),
    "zero": (
        "signed_zero",
        "zero has a sign too: all bits zero but the sign is -0.0. Times 0 the float -1.0 keeps it, the "
        "integer -1 loses it",
    ),
    "subnormal": (
        "subnormal",
        "where the exponent field is 0 there is no hidden 1, and the exponent is 1 - bias",
    ),
    "infinity": (
        "infinity",
        "an exponent field of all ones with mantissa 0 is inf, with the sign of the sign bit",
    ),
    "nan": ("nan", "an exponent field of all ones with a mantissa other than 0 is NaN"),
}


def _reject_if_sign_bit_misread(answer: DecodedCode) -> None:
    """Reject a value whose sign is wrong: the sign bit was left out, or read as something else."""
    if answer.value == -answer.right:
        hint = "the highest bit, above all of exponent and mantissa, is the sign: 1 means negative"
        reject("sign", f"{answer.case}: only the sign is wrong", hint)
    exponents = 2**answer.code.format.exponent_bits
    if answer.code.kind == "negative" and abs(answer.value) == -answer.right * 2.0**exponents:
        reject(
            "sign_in_magnitude",
            f"{answer.case}: the sign bit was read as part of the exponent, which made that {exponents} too "
            "large",
            "a shift alone leaves the sign bit above the exponent: mask it off",
        )


def _reject_if_systematic(answer: DecodedCode, answers: list[DecodedCode]) -> None:
    """Name the mistake that explains every positive normal number, if one does."""
    normal = [each for each in answers if each.code.kind == "normal" and not math.isnan(each.value)]
    found, right = [each.value for each in normal], [each.right for each in normal]
    factor = found[0] / right[0]
    if math.frexp(factor)[0] == 0.5 and found == [factor * value for value in right]:
        message = f"{answer.case}; every normal number is {factor:g} times the right value"
        reject("bias", message, "the bias is 2 ** (exponent_bits - 1) - 1, that is 15 for fp16")
    powers = [2.0 ** math.floor(math.log2(value)) for value in right]
    if found == [value - power for value, power in zip(right, powers, strict=True)]:
        hint = "a normal number has a hidden 1 before the mantissa: 1 + mantissa / 2**mantissa_bits"
        reject("hidden_bit", answer.case, hint)
    if found == powers:
        hint = "mantissa / 2**mantissa_bits is a fraction: divide with /, not with //"
        reject("mantissa_lost", f"{answer.case}; the mantissa made no difference", hint)
    if all(power <= value <= 2 * power for value, power in zip(found, powers, strict=True)):
        hint = "the mantissa is the lowest mantissa_bits bits, all of them, as a fraction of 2**mantissa_bits"
        reject("mantissa_misread", f"{answer.case}; the exponent is right, the mantissa is not", hint)


def _reject_another_format(answer: DecodedCode, answers: list[DecodedCode]) -> NoReturn:
    """Reject a wrong value in a format other than fp16, whose codes were all right."""
    if all(_is_right_or_overflowed(each) for each in answers):
        reject(
            "overflow_on_the_way",
            f"{answer.case}: the value fits, but a product on the way to it overflowed",
            "divide the significand by 2**mantissa_bits before you multiply it by the power of two",
        )
    if all(_is_rounded(each) for each in answers if not math.isnan(each.right)):
        reject(
            "rounded_to_float32",
            f"{answer.case}: every value of this format is right but for rounding to fp32",
            "compute with Python's floats, which hold 64 bits; torch.tensor rounds them to fp32",
        )
    breaks_the_rules = answer.code.format == _E4M3 and answer.code.kind in ("infinity", "nan")
    reject(
        "one_format_only",
        f"{answer.case}; fp16 came out right, so something does not follow from exponent_bits and "
        "mantissa_bits",
        _UNLIKE_E4M3FN if breaks_the_rules else _DERIVE_EVERYTHING,
    )


_UNLIKE_E4M3FN = (
    "torch.float8_e4m3fn breaks the IEEE rules: it keeps numbers where the exponent field is all ones. "
    "Follow the rules here"
)
_DERIVE_EVERYTHING = (
    "derive every number (the bias, the masks, the largest exponent) from exponent_bits and mantissa_bits"
)


def _is_rounded(answer: DecodedCode) -> bool:
    """Whether the value is right, but for rounding to fp32."""
    return answer.value in (answer.right, torch.tensor(answer.right, dtype=torch.float32).item())


def _is_right_or_overflowed(answer: DecodedCode) -> bool:
    """Whether the value is right, but for infinity where ``2**mantissa_bits`` times it fits no float."""
    overflows = math.isinf(answer.right * 2.0**answer.code.format.mantissa_bits)
    return answer.is_right or (overflows and answer.value == math.copysign(math.inf, answer.right))
