"""What became of a number in a format, in a few words."""

from __future__ import annotations

import math

from amp_lessons.formats import Representation
from amp_lessons.text.words import exact, relative, short


def describe_error(representation: Representation) -> str:
    """Say in a few words what became of the number."""
    value = representation.fields.value
    if representation.outcome == "nan":
        return "nan" if math.isnan(value) else "has no nan"
    if representation.outcome == "overflow":
        how = "stops at" if math.isfinite(value) else "becomes"
        return f"overflow, {how} {short(value)}"
    if representation.outcome == "underflow":
        return "becomes zero"
    if representation.outcome == "exact":
        return "exact"
    if math.isinf(representation.relative_error):
        return "has no zero"
    if lost_its_sign(representation):
        return "has no sign"
    return relative(representation.relative_error)


def lost_its_sign(representation: Representation) -> bool:
    """Whether the number was negative, and the format has positive ones only."""
    return not representation.format.signed and representation.error > representation.fields.value


def describe_significand(representation: Representation) -> str:
    """Return the hidden bit plus the mantissa as a fraction: ``1 + 614/1024``."""
    fields, float_format = representation.fields, representation.format
    hidden_bit = int(fields.kind == "normal")
    steps = 2**float_format.mantissa_bits
    return f"{hidden_bit} + {fields.mantissa}/{steps}"


def describe_value(chosen: Representation, value: float) -> str:
    """Say ``value``; beside a subnormal, which is so many times the smallest one, count in those."""
    smallest = chosen.format.smallest_subnormal
    if chosen.fields.kind != "subnormal" or not smallest:
        return exact(value)
    return exact(value, math.frexp(smallest)[1] - 1)
