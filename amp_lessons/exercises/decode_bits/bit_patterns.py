"""Codes of formats that follow the IEEE rules, what kind of number each stands for, and its exact value."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

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
        """What it stands for: "a subnormal number of fp16"."""
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
