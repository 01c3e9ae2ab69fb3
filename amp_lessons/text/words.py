"""Numbers in words, the same in every caption."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

_LONGEST_DECIMAL = 29  # characters: enough for 0.1 in fp32
_SMALLEST_DECIMAL = 1e-4  # below it one counts zeros
_UNITS = ("KiB", "MiB", "GiB", "TiB")


def listed(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


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


def percent(part: float, whole: float) -> str:
    """Return how much of ``whole`` that is, also if it is more: ``62 %``, ``235 %``; of nothing, ``—``."""
    return f"{100 * part / whole:.0f} %" if whole else "—"


def fraction(part: float) -> str:
    """Return a part of 1 as a percentage, never rounded to nothing: ``0``, ``<0.1 %``, ``12.4 %``."""
    if part in (0, 1):
        return f"{100 * part:.0f} %" if part else "0"
    return "<0.1 %" if part < 0.001 else f"{min(99.9, 100 * part):.1f} %"


def memory(nbytes: int) -> str:
    """Return an amount of memory in three digits: ``640 bytes``, ``64.0 KiB``, ``5.25 MiB``, ``76.2 GiB``."""
    if nbytes < 1024:
        return f"{nbytes} bytes"
    power = min((nbytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{three_digits(nbytes / 1024**power)} {_UNITS[power - 1]}"


def flop_rate(flop_per_s: float) -> str:
    """Return a rate in three digits: ``0.310 GFLOP/s``, ``168 GFLOP/s``, ``1.50 TFLOP/s``."""
    if flop_per_s >= 1e12:
        return f"{three_digits(flop_per_s / 1e12)} TFLOP/s"
    return f"{three_digits(flop_per_s / 1e9)} GFLOP/s"


def three_digits(amount: float) -> str:
    """Return a positive amount with three digits, as a decimal: ``0.310``, ``8.80``, ``168``, ``1,555``."""
    return f"{amount:,.{max(0, 2 - math.floor(math.log10(amount)))}f}"


def exact(value: float, most_exponent: int | None = None) -> str:
    """Return a number exactly: as a decimal where that is short, else as ``13421773 × 2^-27 ≈ 0.1``.

    With ``most_exponent`` the power of two is no higher than that one, so that numbers side by side share it.
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
