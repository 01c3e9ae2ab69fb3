"""Exponents as people read them, and as Python does."""

from __future__ import annotations

import re

_LOWERED = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")


def lowered(text: str) -> str:
    """Return ``text`` with raised exponents on the line: ``2⁻²⁴`` becomes ``2^-24``."""
    return re.sub("[⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+", lambda raised: f"^{raised[0].translate(_LOWERED)}", text)


def as_float(text: str) -> float:
    """Return the number that ``text`` shows: ``3.4·10³⁸`` is 3.4e38, ``65504`` is 65504."""
    return float(lowered(text).replace("·10^", "e"))
