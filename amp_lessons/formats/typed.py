"""Understanding what a learner types: a number, or the bits of one."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.floats import FloatFormat, require_format

_EXAMPLES = "0.1, 1e-8, 2^-24, 1/3, -0, inf or nan, or a bit pattern such as 0x7bff or 0b0111"
_PLAIN_SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "∞": "inf"})
_RAISED = re.compile("[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")
_SPACED_OPERATOR = re.compile(r"\s*(\*\*?|\^|/|^[+-])\s*")
_UNSIGNED = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?"
_POWER = re.compile(rf"(?:({_UNSIGNED})\*)?({_UNSIGNED})(?:\^|\*\*)\(?([+-]?[0-9]+)\)?")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(?![0-9,])")
_FIELDS = re.compile(r"[01](\s+[01]+){1,2}")  # as ``FloatFormat.pattern`` writes them
_LONGEST_TEXT = 400  # the exact decimal expansion of any fp32 value is shorter
_MOST_BITS = 64_000  # a longer number says nothing new about any format, and takes seconds to compute with
_BITS_PER_DIGIT = 4


@dataclass(frozen=True)
class Typed:
    """The meaning of a typed text in one format.

    ``value`` is exact: a Fraction, or a float where there is no fraction (−0, infinities, NaN). ``code`` is
    the code that the text names (``is_pattern``) or that the value rounds to.
    """

    text: str
    value: Fraction | float
    code: int
    is_pattern: bool


def parse(text: str, float_format: FloatFormat, *, examples: str = _EXAMPLES) -> Typed:
    """Return what ``text`` means in ``float_format``: a number, or with 0x or 0b in front the bits of one.

    Bits in their fields, as ``pattern`` writes them (0 11110 1111111111), need nothing in front.

    Understands decimals of any size (rounded once, from the exact value), thousands separated by commas,
    powers (2^-24, 2⁻²⁴, 1.5*2^-3, 10**6), fractions, inf, nan and -0. A ``ValueError`` tells the learner
    what to type instead: ``examples``, where not all of these may stand.
    """
    require(text, str, "text", 'what a learner typed, such as "0.1"')
    require(examples, str, "examples", "what may be typed, in words")
    require_format(float_format, "float_format")
    plain = _RAISED.sub(lambda raised: f"^{raised[0].translate(_LOWERED)}", text).translate(_PLAIN_SIGNS)
    cleaned = _SPACED_OPERATOR.sub(r"\1", plain.strip().lower())
    if not cleaned:
        raise ValueError(f"Nothing typed yet. Try {examples}.")
    if len(cleaned) > _LONGEST_TEXT:
        raise ValueError(
            f"That is {len(cleaned)} characters long; {_LONGEST_TEXT} are enough for any value here."
        )
    if _FIELDS.fullmatch(cleaned):
        cleaned = _as_pattern(cleaned, float_format)
    if cleaned.startswith(("0x", "0b")):
        code = _code(cleaned, float_format)
        return Typed(text, float_format.decode(code), code, is_pattern=True)
    value = _number(cleaned, examples)
    return Typed(text, value, float_format.encode(value), is_pattern=False)


def parse_whole(text: str | int, name: str, most: int) -> int:
    """Return the whole number from 1 to ``most`` that was typed: ``8``, ``1,024`` or ``2^10``.

    ``name`` says in the ``ValueError`` for anything else what the number is: ``"The batch"``.
    """
    require_whole(most, "most")
    typed = str(text).strip()
    try:
        value = parse(typed, FORMATS["fp32"]).value
    except ValueError:
        value = Fraction(0)
    if not isinstance(value, Fraction) or value.denominator != 1 or not 1 <= value <= most:
        raise ValueError(f"{name} is a whole number from 1 to {most:,}, which “{typed}” is not.")
    return int(value)


def _as_pattern(fields: str, float_format: FloatFormat) -> str:
    """Return bits that were typed field by field with 0b in front, if the fields are those of the format."""
    typed, its = fields.split(), float_format.pattern(0).split()
    if list(map(len, typed)) != list(map(len, its)):
        raise ValueError(f"Bits of {float_format.name} in their fields look like this: {' '.join(its)}.")
    return f"0b{''.join(typed)}"


def _code(pattern: str, float_format: FloatFormat) -> int:
    pattern = pattern.replace(" ", "").replace("_", "")  # as in 0b0_11110_1111111111
    base, digits = (16, "0-9 and a-f") if pattern[1] == "x" else (2, "0 and 1")
    try:
        code = int(pattern, base)
    except ValueError:
        raise ValueError(
            f"“{pattern}” is no bit pattern: after {pattern[:2]} come the digits {digits}."
        ) from None
    if code >= 2**float_format.bits:
        last = 2**float_format.bits - 1
        raise ValueError(
            f"{pattern} needs {code.bit_length()} bits, but {float_format.name} has {float_format.bits}: "
            f"its last pattern is {last:#x}."
        )
    return code


def _number(text: str, examples: str) -> Fraction | float:
    sign, magnitude = (-1, text[1:]) if text[0] == "-" else (1, text.removeprefix("+"))
    if magnitude in ("inf", "infinity", "nan"):
        return sign * float(magnitude)
    exact = _magnitude(magnitude, text, examples)
    return sign * exact if exact else math.copysign(0.0, sign)


def _magnitude(magnitude: str, text: str, examples: str) -> Fraction:
    if "," in magnitude:
        magnitude = _without_thousands(magnitude, text)
    if power := _POWER.fullmatch(magnitude):
        factor, base, exponent = power.groups()
        return _decimal(factor or "1") * _power(base, int(exponent), text)
    top, slash, bottom = magnitude.partition("/")
    if not all(re.fullmatch(_UNSIGNED, part) for part in ([top, bottom] if slash else [top])):
        raise ValueError(f"“{text}” is not a number. Try {examples}.")
    return _quotient(_decimal(top), _decimal(bottom or "1"), text)


def _without_thousands(magnitude: str, text: str) -> str:
    if not _THOUSANDS.match(magnitude):
        raise ValueError(
            f"Write “{text}” with a decimal point: a comma only separates thousands, as in 65,520."
        )
    return magnitude.replace(",", "")


def _decimal(text: str) -> Fraction:
    exponent = text.partition("e")[2]
    if exponent and abs(int(exponent)) * _BITS_PER_DIGIT > _MOST_BITS:
        raise _too_far_out(text)
    return Fraction(text)


def _power(base: str, exponent: int, text: str) -> Fraction:
    exact = _decimal(base)
    if (exact.numerator.bit_length() + exact.denominator.bit_length()) * abs(exponent) > _MOST_BITS:
        raise _too_far_out(text)
    return exact**exponent if exact or exponent >= 0 else _quotient(Fraction(1), exact, text)


def _quotient(top: Fraction, bottom: Fraction, text: str) -> Fraction:
    if not bottom:
        raise ValueError(f"“{text}” divides by zero. Type inf for infinity.")
    return top / bottom


def _too_far_out(text: str) -> ValueError:
    return ValueError(
        f"“{text}” is too far out to compute with exactly; 1e400 overflows every format just as well."
    )
