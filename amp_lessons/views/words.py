"""Numbers in words, the same in every caption."""

from __future__ import annotations

import math
from decimal import Decimal

_LONGEST_DECIMAL = 29  # characters: enough for 0.1 in fp32
_SMALLEST_DECIMAL = 1e-4  # below it one counts zeros


def power_of_two(value: float) -> str:
    """Return ``2^10`` for 1024.0 and at most four digits for what is no power of two."""
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 else f"{value:.4g}"


def share(count: int, total: int) -> str:
    """Return how many of ``total`` that is: a percentage, never rounded to nothing; ``none``; ``all``."""
    if count == 0:
        return "none"
    if count == total:
        return "all"
    percent = 100 * count / total
    if percent < 0.1:
        return "under 0.1 %"
    return "over 99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def exact(value: float, most_exponent: int | None = None) -> str:
    """Return a number exactly: as a decimal where that is short, else as ``13421773 × 2^-27 ≈ 0.1``.

    With `most_exponent` the power of two is no higher than that one, so that numbers side by side share it.
    """
    if not math.isfinite(value) or value == 0:
        return str(value).removesuffix(".0")
    decimal = f"{Decimal(value):f}"
    if len(decimal) <= _LONGEST_DECIMAL and abs(value) >= _SMALLEST_DECIMAL:
        return decimal
    return f"{_in_powers_of_two(value, most_exponent)} ≈ {value:.5g}"


def _in_powers_of_two(value: float, most_exponent: int | None) -> str:
    numerator, denominator = value.as_integer_ratio()
    twos = (numerator & -numerator).bit_length() - 1  # how often 2 divides it
    exponent = twos - (denominator.bit_length() - 1)
    excess = 0 if most_exponent is None else max(0, exponent - most_exponent)
    exponent, count = exponent - excess, numerator >> twos << excess
    return f"{'-' * (count < 0)}2^{exponent}" if abs(count) == 1 else f"{count} × 2^{exponent}"


def short(value: float) -> str:
    """Return a number in at most nine digits, with ``…`` where that is not all of it."""
    text = f"{value:.9g}"
    return text if not math.isfinite(value) or float(text) == value else f"{text}…"


def relative(error: float) -> str:
    """Return a relative error as a percentage where that can be read, else as ``1.5e-08``."""
    if 1e-5 <= error < 1:
        return f"{100 * error:.2g} %"
    return f"{100 * error:.0f} %" if 1 <= error < 100 else f"{error:.1e}"
