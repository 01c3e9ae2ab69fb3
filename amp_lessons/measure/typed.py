"""Whole numbers as learners type them."""

from __future__ import annotations

from fractions import Fraction

from amp_lessons.formats import FORMATS, parse


def parse_whole(text: str | int, name: str, most: int) -> int:
    """Return the whole number from 1 to ``most`` that was typed: ``8``, ``1,024`` or ``2^10``.

    ``name`` says in the ValueError for anything else what the number is: ``"The batch"``.
    """
    typed = str(text).strip()
    try:
        value = parse(typed, FORMATS["fp32"]).value
    except ValueError:
        value = Fraction(0)
    if not isinstance(value, Fraction) or value.denominator != 1 or not 1 <= value <= most:
        raise ValueError(f"{name} is a whole number from 1 to {most:,}, which “{typed}” is not.")
    return int(value)
