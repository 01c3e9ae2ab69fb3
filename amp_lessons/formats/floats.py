"""One description for every binary floating-point format, from fp32 down to four bits.

A code is a sign bit, then an exponent field, then a mantissa field. Everything else follows from how many
bits each field has and from which codes the format gives away to infinity and NaN.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import cached_property
from numbers import Rational
from typing import Any, Literal

import torch
from torch import Tensor

from amp_lessons._base.arguments import require
from amp_lessons.formats import rounding

Kind = Literal["zero", "subnormal", "normal", "inf", "nan"]
Overflow = Literal["inf", "nan", "saturate"]


class Specials(Enum):
    """Which codes a format gives away to infinity and NaN.

    The suffixes are those of the dtype names in PyTorch, MLIR and ml_dtypes: ``f`` finite only, ``n`` NaN in
    an unusual place, ``uz`` unsigned zero (https://github.com/jax-ml/ml_dtypes#float8_e4m3fn).
    """

    IEEE = "the top exponent: mantissa 0 is infinity, any other mantissa is NaN"
    FN = "all exponent and mantissa bits set is NaN; no infinity"
    FNUZ = "what would be minus zero is the only NaN; no infinity; the bias is one larger"
    FINITE = "no infinity, no NaN: every code is a number"


@dataclass(frozen=True)
class Fields:
    """One code taken apart: the three fields as they are stored, and what they mean together."""

    sign: int  # 0 or 1
    exponent: int  # the stored field, bias included
    mantissa: int  # the stored field, without the hidden bit
    bits: int  # the whole code
    value: float
    kind: Kind


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point format: how many bits each field has, and which codes are infinity or NaN.

    ``dtype`` is the PyTorch dtype that stores it, where PyTorch can cast to one: TF32 only ever exists inside
    a tensor core, and ``torch.float4_e2m1fn_x2`` is a container for pairs that nothing can be cast to.
    ``has_zero=False`` is E8M0, the scale of a block: no zero and no subnormals, every code is a power of two.
    ``used_for`` says in half a sentence what training uses it for.

    Overflow, as the installed PyTorch does it (``overflow`` asks it, ``encode`` and ``quantize`` follow):

    - fp32, fp16, bf16, fp8_e5m2: infinity, from half a step above ``max`` on (fp16: from 65520).
    - tf32: infinity, like the fp32 it is cut from.
    - fp8_e4m3: ±448, infinities included, or NaN in versions that lack
      https://github.com/pytorch/pytorch/pull/178817.
    - fp8_e4m3fnuz, fp8_e5m2fnuz: NaN, for infinities too.
    - e8m0: NaN. PyTorch's cast drops the sign, and whatever is smaller than 2^-127, zero included, becomes
      2^-127. It rounds as if that code were still zero: anything between 2^-127 and 2^-126 becomes 2^-126.
    - fp4_e2m1: ±6. PyTorch has no cast; this is what NVIDIA's ``cvt.rn.satfinite.e2m1x2.f32`` does. There
      being no NaN, NaN becomes +6 as it does there (PTX ISA, instruction "cvt").
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    specials: Specials = Specials.IEEE
    dtype: torch.dtype | None = None
    signed: bool = True
    has_zero: bool = True
    used_for: str = field(default="", compare=False, repr=False)

    @property
    def bits(self) -> int:
        """The number of bits in a code."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @cached_property
    def bias(self) -> int:
        """The number that is subtracted from the exponent field to get the power of two."""
        return 2 ** (self.exponent_bits - 1) - (self.specials is not Specials.FNUZ)

    @property
    def has_infinity(self) -> bool:
        """Whether some code means infinity."""
        return self.specials is Specials.IEEE

    @property
    def has_nan(self) -> bool:
        """Whether some code means NaN."""
        return self.specials is not Specials.FINITE

    @cached_property
    def max(self) -> float:
        """The largest finite value."""
        return self.decode(self.max_code)

    @cached_property
    def smallest_normal(self) -> float:
        """The smallest positive value with all its mantissa bits; below it precision is lost bit by bit."""
        return self.decode(self.has_zero << self.mantissa_bits)

    @property
    def smallest_subnormal(self) -> float | None:
        """The smallest positive value with fewer bits than a normal one; None where there are none (E8M0)."""
        return self.decode(1) if self.has_zero else None

    @property
    def epsilon(self) -> float:
        """The gap between 1 and the next larger value."""
        return 2.0**-self.mantissa_bits

    @property
    def decimal_digits(self) -> float:
        """The decimal digits that a normal value carries: log10 of 2^(mantissa bits + the hidden bit)."""
        return (self.mantissa_bits + 1) * math.log10(2)

    @property
    def finite_value_count(self) -> int:
        """The number of different finite values; plus and minus zero are one value."""
        return 2 * self.max_code + 1 if self.signed else self.max_code + 1

    @cached_property
    def max_code(self) -> int:
        """The code of the largest finite value; codes 0 … max_code are the non-negative values in order."""
        if self.specials is Specials.IEEE:
            return self._infinity_code - 1
        return self._magnitude_mask - (self.specials is Specials.FN)

    @cached_property
    def overflow(self) -> Overflow:
        """The result of a number beyond the range: where PyTorch has a cast, its answer on the CPU."""
        if self.dtype is None:
            return "inf" if self.has_infinity else "saturate"
        answer = (
            torch.tensor(torch.inf, dtype=torch.float32, device="cpu").to(self.dtype).to(torch.float32).item()
        )
        return "nan" if math.isnan(answer) else "inf" if math.isinf(answer) else "saturate"

    def encode(self, value: float | Rational) -> int:
        """Return the code of the value nearest to ``value``, ties to even; overflow as the class describes.

        An int or Fraction counts with its exact value, anything else as the float it converts to, so there is
        one rounding only. NaN gives the quiet NaN without a sign.
        """
        if isinstance(value, Rational):
            exact = Fraction(int(value.numerator), int(value.denominator))
            return self._signed(self._code_within_range(abs(exact)), exact < 0)
        value = float(value)
        if math.isnan(value):
            return self._nan_code if self.has_nan else self.max_code
        code = self._overflow_code if math.isinf(value) else self._code_within_range(Fraction(abs(value)))
        return self._signed(code, math.copysign(1.0, value) < 0)

    def decode(self, code: int) -> float:
        """Return the value of ``code``, exactly. Raises ``ValueError`` for what is no code of the format."""
        return self.split(code).value

    def fields(self, value: float | Rational) -> Fields:
        """Round ``value`` to the format and take its code apart."""
        return self.split(self.encode(value))

    def split(self, code: int) -> Fields:
        """Take a code apart into sign, exponent and mantissa fields, value and kind."""
        code = operator.index(code)
        last = 2**self.bits - 1
        if not 0 <= code <= last:
            raise ValueError(
                f"{code:#x} is no code of {self.name}: its {self.bits} bits run from 0 to {last:#x}."
            )
        sign = code >> (self.exponent_bits + self.mantissa_bits)
        exponent, mantissa = divmod(code & self._magnitude_mask, 2**self.mantissa_bits)
        kind = self._kind(sign, exponent, mantissa)
        magnitude = self._magnitude(exponent, mantissa, kind)
        return Fields(sign, exponent, mantissa, code, -magnitude if sign else magnitude, kind)

    def power(self, code: int) -> int:
        """Return the power of two that the significand of ``code`` is multiplied by."""
        return self._power(self.split(code).exponent)

    def significand(self, code: int) -> float:
        """Return 1.mantissa of a normal code, 0.mantissa of a subnormal: |value| = significand · 2^power."""
        fields = self.split(code)
        return self._hidden_bit(fields.exponent) + fields.mantissa * self.epsilon

    def pattern(self, code: int) -> str:
        """Return the bits of ``code`` as text, with a space between the fields: "0 01011 1001100110"."""
        fields = self.split(code)
        widths = (int(self.signed), self.exponent_bits, self.mantissa_bits)
        stored = (fields.sign, fields.exponent, fields.mantissa)
        return " ".join(f"{field:0{width}b}" for field, width in zip(stored, widths, strict=True) if width)

    def overflows(self, value: float | Rational) -> bool:
        """Return whether ``value`` rounds beyond the range; infinity does only where the format lacks it."""
        if not isinstance(value, Rational):
            value = float(value)
            if not math.isfinite(value):
                return math.isinf(value) and not self.has_infinity
        return self._nearest_code(abs(Fraction(value))) > self.max_code

    def next_up(self, value: float | Rational) -> float | None:
        """Return the value just above the one that ``value`` rounds to; None if there is none, or for NaN."""
        return self._step(value, 1)

    def next_down(self, value: float | Rational) -> float | None:
        """Return the value just below the one that ``value`` rounds to; None if there is none, or for NaN."""
        return self._step(value, -1)

    def spacing(self, value: float | Rational) -> float:
        """Return the gap between values in the binade of the one that ``value`` rounds to.

        Infinity for infinity and NaN for NaN, as ``math.ulp`` has it.
        """
        fields = self.fields(value)
        if not math.isfinite(fields.value):
            return abs(fields.value)
        return math.ldexp(1.0, self._power(fields.exponent) - self.mantissa_bits)

    def codes_between(self, low: float, high: float) -> range:
        """Return the codes of the values from ``low`` >= 0 to ``high``, in order; ``len`` of it is free."""
        if not 0 <= low <= high:
            raise ValueError(f"Give two numbers with 0 <= low <= high, not low={low} and high={high}.")
        if low > self.max:
            return range(0)
        first, last = self.encode(low), self.encode(min(high, self.max))
        return range(first + (self.decode(first) < low), last + 1 - (self.decode(last) > high))

    def quantize(self, x: Tensor) -> Tensor:
        """Return a new float32 tensor: each element of ``x`` rounded to a value of this format.

        ``x`` is float32, or float16 or bfloat16, which float32 holds exactly; any shape, any device. To
        nearest, ties to even; overflow as the class describes. Carries no gradient. It is PyTorch's own cast
        there and back where PyTorch has one, ``quantize_by_rounding`` elsewhere.
        """
        x = rounding.as_float32(x)
        if self.dtype is None:
            return self.quantize_by_rounding(x)
        return x.to(self.dtype, copy=True).to(torch.float32)

    def quantize_by_rounding(self, x: Tensor) -> Tensor:
        """Do what ``quantize`` does by arithmetic on the bits of ``x``, without PyTorch's cast."""
        x = self._without_lost_sign(rounding.as_float32(x))
        return self._in_range(rounding.to_nearest(x, self._spacing_at(x)))

    def round_stochastically(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return ``x`` with each element rounded up or down at random, so that the mean error is zero.

        Takes and gives what ``quantize`` does; the odds are those of ``rounding.to_random_side``. Only a
        value beyond the range is still off on average.
        """
        x = self._without_lost_sign(rounding.as_float32(x))
        return self._in_range(rounding.to_random_side(x, self._spacing_at(x), generator))

    @cached_property
    def _magnitude_mask(self) -> int:
        return 2 ** (self.exponent_bits + self.mantissa_bits) - 1

    @cached_property
    def _infinity_code(self) -> int:
        return (2**self.exponent_bits - 1) << self.mantissa_bits

    @property
    def _nan_code(self) -> int:
        if self.specials is Specials.IEEE:
            # The quiet one: the top mantissa bit says so
            return self._infinity_code + 2 ** (self.mantissa_bits - 1)
        # All ones (FN), or the sign bit alone (FNUZ)
        return self.max_code + 1

    @property
    def _overflow_code(self) -> int:
        # Infinity or NaN is what follows the largest value
        return self.max_code + (self.overflow != "saturate")

    def _signed(self, code: int, negative: bool) -> int:
        takes_sign = self.signed and (code > 0 or self.specials is not Specials.FNUZ)
        return code | (takes_sign and negative) << (self.bits - 1)

    def _kind(self, sign: int, exponent: int, mantissa: int) -> Kind:
        magnitude = exponent << self.mantissa_bits | mantissa
        if self.specials is Specials.FNUZ and sign and not magnitude:
            return "nan"
        if magnitude > self.max_code:
            return "inf" if self.has_infinity and not mantissa else "nan"
        if self._hidden_bit(exponent):
            return "normal"
        return "subnormal" if mantissa else "zero"

    def _hidden_bit(self, exponent: int) -> int:
        return int(exponent > 0 or not self.has_zero)

    def _power(self, exponent: int) -> int:
        return (max(exponent, 1) if self.has_zero else exponent) - self.bias

    def _magnitude(self, exponent: int, mantissa: int, kind: Kind) -> float:
        if kind in ("inf", "nan"):
            return math.inf if kind == "inf" else math.nan
        significand = self._hidden_bit(exponent) << self.mantissa_bits | mantissa
        return math.ldexp(significand, self._power(exponent) - self.mantissa_bits)

    @cached_property
    def _lowest_power(self) -> int:
        # E8M0 included: PyTorch rounds to it as if code 0 were zero
        return 1 - self.bias

    def _code_within_range(self, magnitude: Fraction) -> int:
        code = self._nearest_code(magnitude)
        return code if code <= self.max_code else self._overflow_code

    def _nearest_code(self, magnitude: Fraction) -> int:
        power = max(_floor_log2(magnitude), self._lowest_power) if magnitude else self._lowest_power
        steps = round(magnitude / Fraction(2) ** (power - self.mantissa_bits))  # `round` takes ties to even
        # Codes count the steps through all binades, so a carry out of the mantissa needs no care
        return ((power - self._lowest_power) << self.mantissa_bits) + steps

    def _step(self, value: float | Rational, by: int) -> float | None:
        fields = self.fields(value)
        if fields.kind == "nan":
            return None
        magnitude = fields.bits & self._magnitude_mask
        position = (-magnitude if fields.sign else magnitude) + by
        if abs(position) > self.max_code + self.has_infinity or (position < 0 and not self.signed):
            return None
        return self.decode(self._signed(abs(position), position < 0))

    def _without_lost_sign(self, x: Tensor) -> Tensor:
        return x if self.signed else x.abs()

    def _spacing_at(self, x: Tensor) -> Tensor:
        return rounding.spacing_at(x, self.mantissa_bits, math.ldexp(1.0, self._lowest_power))

    def _in_range(self, rounded: Tensor) -> Tensor:
        """Treat what was rounded to beyond the range, and zeros and NaN that the format lacks; in place."""
        if self.overflow == "saturate":
            rounded.clamp_(-self.max, self.max)
        elif self.overflow == "nan":
            rounded.masked_fill_(rounded.abs() > self.max, math.nan)
        else:
            rounding.overflow_to_infinity_(rounded, self.power(self.max_code))
        if not self.has_nan:
            rounded.nan_to_num_(nan=self.max)
        if not self.has_zero:
            rounded.clamp_(min=self.smallest_normal)
        return rounded.add_(0.0) if self.specials is Specials.FNUZ else rounded  # −0 + 0 is +0


def require_format(value: Any, name: str) -> FloatFormat:
    """Return a number format. Raises TypeError for anything else, such as its name or its dtype."""
    return require(value, FloatFormat, name, 'a number format such as formats.FORMATS["fp16"]')


def _floor_log2(magnitude: Fraction) -> int:
    estimate = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return estimate if magnitude >= Fraction(2) ** estimate else estimate - 1
