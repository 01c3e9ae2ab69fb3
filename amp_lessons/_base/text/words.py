"""Numbers in words, the same in every caption; and what marks an output line that differs from run to run."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal

_LONGEST_DECIMAL = 29  # characters: enough for 0.1 in fp32
_SMALLEST_DECIMAL = 1e-4  # below it one counts zeros
_UNITS = ("KiB", "MiB", "GiB", "TiB")
_RAISED = str.maketrans("+-−0123456789", "⁺⁻⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# What is no prose, and stays as it is: code, calls without backticks, formulas, addresses, links, tags.
_NO_PROSE = re.compile(
    r"(```.*?```|``.*?``|`[^`]*`|[A-Za-z]\w*[._][\w.]*\([^()]*\)|\$[^$\n]+\$"
    r"|https?://\S+|\]\([^)\s]*\)|<[^<>\n]+>)",
    re.DOTALL,
)
_ENDS = r"(?![\w^]|\.\d|\*\*)"
_BEGINS = r"(?<![\w.^=])"  # ``lr=1e-3`` is code, with backticks or without
_POWER = re.compile(rf"{_BEGINS}(\d+(?:\.\d+)?)(?:\^|\*\*)(?:\(([-+−]?\d+)\)|([-+−]?\d+)){_ENDS}")
_SCIENTIFIC = re.compile(rf"{_BEGINS}(\d+(?:\.\d+)?)[eE]([-+−]?\d+){_ENDS}")


def listed(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def shortened(name: str, longest: int) -> str:
    """Leave out the beginning of a name that is too long: names of modules differ at their end."""
    return name if len(name) <= longest else f"…{name[1 - longest :]}"


def counted(count: int, what: str) -> str:
    """Return ``1 exercise``, ``3 exercises``, ``0 exercises``."""
    return f"{count} {what}{'s' * (count != 1)}"


def power(base: int, exponent: int) -> str:
    """Return a power as people read it: ``2⁻¹⁴``, ``10⁶``."""
    return f"{base}{str(exponent).translate(_RAISED)}"


def number(value: float, digits: int = 4) -> str:
    """Return a number in at most so many digits: ``0.25``, ``1234``, ``5.96·10⁻⁸``, ``inf``."""
    return superscripts(f"{value:.{digits}g}")


def superscripts(text: str) -> str:
    """Return ``text`` with exponents of numbers raised: ``2^-14`` is ``2⁻¹⁴``, ``6e-08`` is ``6·10⁻⁸``.

    What stands between backticks, formulas, addresses and tags stay as they are, and so does what has no
    number above it, such as ``2^k``. What was raised once stays as it is.
    """
    pieces = _NO_PROSE.split(text)
    return "".join(piece if i % 2 else _raised(piece) for i, piece in enumerate(pieces))


def _raised(prose: str) -> str:
    prose = _POWER.sub(lambda found: f"{found[1]}{(found[2] or found[3]).translate(_RAISED)}", prose)
    return _SCIENTIFIC.sub(lambda found: _in_powers_of_ten(found[1], int(found[2].replace("−", "-"))), prose)


def _in_powers_of_ten(factor: str, exponent: int) -> str:
    return power(10, exponent) if factor == "1" else f"{factor}·{power(10, exponent)}"


def power_of_two(value: float) -> str:
    """Return ``2¹⁰`` for 1024.0 and at most four digits for what is no power of two."""
    mantissa, exponent = math.frexp(value)
    return power(2, exponent - 1) if mantissa == 0.5 else number(value)


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
    """Return a number exactly: as a decimal where that is short, else as ``13421773 × 2⁻²⁷ ≈ 0.1``.

    With ``most_exponent`` the power of two is no higher than that one, so that numbers side by side share it.
    """
    if not math.isfinite(value) or value == 0:
        return str(value).removesuffix(".0")
    decimal = f"{Decimal(value):f}"
    if len(decimal) <= _LONGEST_DECIMAL and abs(value) >= _SMALLEST_DECIMAL:
        return decimal
    return f"{_in_powers_of_two(value, most_exponent)} ≈ {number(value, 5)}"


def _in_powers_of_two(value: float, most_exponent: int | None) -> str:
    numerator, denominator = value.as_integer_ratio()
    twos = (numerator & -numerator).bit_length() - 1  # how often 2 divides it
    exponent = twos - (denominator.bit_length() - 1)
    excess = 0 if most_exponent is None else max(0, exponent - most_exponent)
    exponent, count = exponent - excess, numerator >> twos << excess
    scale = power(2, exponent)
    return f"{'-' * (count < 0)}{scale}" if abs(count) == 1 else f"{count} × {scale}"


def short(value: float) -> str:
    """Return a number in at most nine digits, five with a power of ten; ``…`` where that is not all of it."""
    text = f"{value:.9g}"
    if "e" in text and math.isfinite(value):
        text = f"{value:.5g}"
    if not math.isfinite(value) or float(text) == value:
        return superscripts(text)
    digits, e, exponent = text.partition("e")
    return f"{digits}…·{power(10, int(exponent))}" if e else f"{text}…"


def relative(error: float) -> str:
    """Return a relative error as a percentage where that can be read, else as ``1.5·10⁻⁸``."""
    if 1e-5 <= error < 0.1:
        return f"{100 * error:.2g} %"
    return f"{100 * error:.0f} %" if 0.1 <= error < 100 else superscripts(f"{error:.1e}")


MEASURED_MARK = "[measured]"  # on the machine that ran it
COMPUTED_MARK = "[computed]"  # without any particular hardware, by the rules of the PyTorch that is installed
