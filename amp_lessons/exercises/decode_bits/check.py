"""From bits to a value, by the rules that all IEEE formats share."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from typing import Any, Literal

import torch

from amp_lessons.audit.findings import Finding, failed, passed
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.report import common_findings
from amp_lessons.exercises.report.results import Verdict
from amp_lessons.text.describing import describe

Kind = Literal["normal", "negative", "zero", "subnormal", "infinity", "nan"]


_FORMATS = {
    (5, 10): "float16",
    (8, 7): "bfloat16",
    (5, 2): "8-bit E5M2",
    (4, 3): "8-bit E4M3 by IEEE rules",
    (3, 2): "a 6-bit format",
    (8, 23): "float32",
    (11, 52): "float64",
}
_CODES_PER_FORMAT = 500
_SMALLEST_NORMAL = 2.0**-14  # of float16, the first format tried
_ORDER: tuple[Kind, ...] = ("normal", "negative", "zero", "subnormal", "infinity", "nan")


def kind_of(bits: int, exponent_bits: int, mantissa_bits: int) -> Kind:
    """Say what kind of number a code stands for; ``negative`` is a normal number with the sign bit set."""
    mantissa = bits % 2**mantissa_bits
    exponent = bits // 2**mantissa_bits % 2**exponent_bits
    if exponent == 2**exponent_bits - 1:
        return "nan" if mantissa else "infinity"
    if exponent == 0:
        return "subnormal" if mantissa else "zero"
    return "negative" if bits >> (exponent_bits + mantissa_bits) else "normal"


def value_of(bits: int, exponent_bits: int, mantissa_bits: int) -> float:
    """Decode a code exactly, for every format whose values fit a Python float."""
    kind = kind_of(bits, exponent_bits, mantissa_bits)
    sign = -1.0 if bits >> (exponent_bits + mantissa_bits) else 1.0
    if kind in ("infinity", "nan"):
        return sign * math.inf if kind == "infinity" else math.nan
    exponent = bits // 2**mantissa_bits % 2**exponent_bits
    significand = bits % 2**mantissa_bits + (2**mantissa_bits if exponent else 0)
    power = max(exponent, 1) - (2 ** (exponent_bits - 1) - 1) - mantissa_bits
    return math.copysign(math.ldexp(significand, power), sign)


def _codes(exponent_bits: int, mantissa_bits: int) -> Iterator[int]:
    """Go through small formats completely, through large ones in steps that meet every kind."""
    width = 1 + exponent_bits + mantissa_bits
    odd_step = 2**width // _CODES_PER_FORMAT | 1  # odd, so that the lowest bits differ from code to code
    yield from range(0, 2**width, odd_step)
    top = (2**exponent_bits - 1) << mantissa_bits
    for sign in (0, 1 << (width - 1)):
        yield from (
            sign + code for code in (0, 1, 2**mantissa_bits - 1, 2**mantissa_bits, top - 1, top, top + 1)
        )


def check(attempt: Any) -> Verdict:
    attempt = attempt.value
    finding = common_findings.uncallable(attempt, "decode_bits", 0, 5, 10)
    if finding is not None:
        return Verdict((finding,))
    for exponent_bits, mantissa_bits in _FORMATS:
        codes = sorted(
            set(_codes(exponent_bits, mantissa_bits)),
            key=lambda code: (_ORDER.index(kind_of(code, exponent_bits, mantissa_bits)), code),
        )
        finding = _examine_format(attempt, codes, exponent_bits, mantissa_bits)
        if finding is not None:
            return Verdict((finding,))
    return Verdict(_WHAT_HOLDS)


def _examine_format(attempt: Any, codes: list[int], exponent_bits: int, mantissa_bits: int) -> Finding | None:
    current = [codes[0]]

    def decode_all() -> list[Any]:
        values = []
        for code in codes:
            current[0] = code
            values.append(attempt(code, exponent_bits, mantissa_bits))
        return values

    outcome = sandbox.call(decode_all)
    finding = common_findings.not_attempted(outcome) or common_findings.misconduct(outcome)
    if finding is not None:
        return finding
    if outcome.error is not None:
        what = _called(current[0], exponent_bits, mantissa_bits)
        return common_findings.raised(
            outcome, f"for {what}, {_described(current[0], exponent_bits, mantissa_bits)}"
        )
    pairs = list(zip(codes, outcome.value, strict=True))
    found = (_mistake(seen, code, exponent_bits, mantissa_bits) for code, seen in pairs)
    finding = next((finding for finding in found if finding is not None), None)
    explain = {"normal": _normal, "one_format_only": _one_format}.get(finding.code) if finding else None
    if finding is None or explain is None:
        return finding
    return explain(finding, [(seen, value_of(code, exponent_bits, mantissa_bits)) for code, seen in pairs])


def _called(code: int, exponent_bits: int, mantissa_bits: int) -> str:
    return f"decode_bits(0x{code:X}, {exponent_bits}, {mantissa_bits})"


def _described(code: int, exponent_bits: int, mantissa_bits: int) -> str:
    kind = kind_of(code, exponent_bits, mantissa_bits)
    article = {"infinity": "an infinity", "nan": "a NaN", "negative": "a negative number"}.get(
        kind, f"a {kind}"
    )
    noun = " number" if kind in ("normal", "subnormal") else ""
    return f"{article}{noun} of {_FORMATS[exponent_bits, mantissa_bits]}"


def _mistake(seen: Any, code: int, exponent_bits: int, mantissa_bits: int) -> Finding | None:
    right = value_of(code, exponent_bits, mantissa_bits)
    call = _called(code, exponent_bits, mantissa_bits)
    if isinstance(seen, bool) or not isinstance(seen, numbers.Real):
        return failed(
            "wrong_return_type",
            f"{call} returned {describe(seen)}, not a float",
            "return a Python float",
        )
    value = _as_float(seen)
    if math.isinf(value) and seen != value:
        return failed(
            "too_large_for_a_float",
            f"{call} returned a number too large for a float instead of {right!r}",
            "compute with floats, as in 2.0 ** (exponent - bias)",
        )
    if (value == right and math.copysign(1, value) == math.copysign(1, right)) or (
        value != value and right != right
    ):
        return None
    case = f"{call} returned {value!r} instead of {right!r}, {_described(code, exponent_bits, mantissa_bits)}"
    if (exponent_bits, mantissa_bits) != (5, 10):
        return _fails_elsewhere(right, exponent_bits, mantissa_bits, case)
    return _explained(value, right, kind_of(code, exponent_bits, mantissa_bits), case)


def _as_float(seen: Any) -> float:
    try:
        return float(seen)
    except OverflowError:  # Python's integers and fractions know no largest number
        return math.inf


def _fails_elsewhere(right: float, exponent_bits: int, mantissa_bits: int, case: str) -> Finding:
    """Explain a mistake in another format than float16, which is tried first."""
    hint = (
        "derive every number (the bias, the masks, the largest exponent) from exponent_bits and mantissa_bits"
    )
    if (exponent_bits, mantissa_bits) == (4, 3) and not math.isfinite(right):
        hint = (
            "torch.float8_e4m3fn breaks the IEEE rules: it keeps numbers where the exponent field is all "
            "ones. Follow the rules here"
        )
    return failed(
        "one_format_only",
        f"{case}; float16 came out right, so something does not follow from exponent_bits and mantissa_bits",
        hint,
    )


def _explained(value: float, right: float, kind: Kind, case: str) -> Finding:
    if kind == "subnormal" and value in (2 * right, right / 2):
        return failed(
            "subnormal_exponent",
            f"{case}: off by a factor of two",
            "the exponent of a subnormal is 1 - bias, not 0 - bias",
        )
    if kind == "zero" and value != 0:
        kind = "subnormal"  # no sign is wrong yet: a hidden 1 was added to an exponent field of 0
    code, hint = {
        "normal": (
            "normal",
            "sign, exponent and mantissa lie in this order, from the highest bit down; bin() leaves leading "
            "zeros out",
        ),
        "negative": ("sign", "the highest bit is the sign: 1 means negative"),
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
    }[kind]
    return failed(code, case, hint)


def _normal(finding: Finding, pairs: list[tuple[Any, float]]) -> Finding:
    """Name the mistake that explains every positive normal number, if one does."""
    normal = [
        (_as_float(seen), right) for seen, right in pairs if isinstance(seen, numbers.Real) and right > 0
    ]
    normal = [(seen, right) for seen, right in normal if math.isfinite(right) and right >= _SMALLEST_NORMAL]
    factors = {seen / right for seen, right in normal}
    if len(factors) == 1 and math.frexp(factors.pop())[0] == 0.5:
        return failed(
            "bias",
            f"{finding.message}; every normal number is {normal[0][0] / normal[0][1]:g} times the right "
            "value",
            "the bias is 2 ** (exponent_bits - 1) - 1, that is 15 for float16",
        )
    if all(seen == right - _power_below(right) for seen, right in normal):
        return failed(
            "hidden_bit",
            finding.message,
            "a normal number has a hidden 1 before the mantissa: 1 + mantissa / 2**mantissa_bits",
        )
    if all(seen == _power_below(right) for seen, right in normal):
        return failed(
            "mantissa_lost",
            f"{finding.message}; the mantissa made no difference",
            "mantissa / 2**mantissa_bits is a fraction: divide with /, not with //",
        )
    return finding


def _one_format(finding: Finding, pairs: list[tuple[Any, float]]) -> Finding:
    """Name the rounding to float32, if that explains every value of this format."""
    rounded = {right: torch.tensor(right, dtype=torch.float32).item() for _, right in pairs}
    if not all(seen in (right, rounded[right]) for seen, right in pairs if right == right):
        return finding
    return failed(
        "rounded_to_float32",
        f"{finding.message.partition(';')[0]}: every value of this format is right but for rounding to "
        "float32",
        "compute with Python's floats, which hold 64 bits; torch.tensor rounds them to float32",
    )


def _power_below(value: float) -> float:
    return 2.0 ** math.floor(math.log2(value))


_WHAT_HOLDS = (
    passed("normal", "normal numbers, positive and negative"),
    passed("special", "signed zeros, subnormal numbers, infinities and NaN"),
    passed("any_format", "in every format tried: " + ", ".join(_FORMATS.values())),
)
