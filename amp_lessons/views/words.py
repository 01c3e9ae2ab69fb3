"""Numbers in words, the same in every caption."""

from __future__ import annotations

import math


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
