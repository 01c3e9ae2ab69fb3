"""Rounding float32 to a smaller format with integers only: an independent check of what the package does."""

from __future__ import annotations

import numpy as np

from amp_lessons.formats import FloatFormat, Specials


def rounded_by_integers(bits: np.ndarray, float_format: FloatFormat) -> np.ndarray:
    """Round the float32 values with these uint32 `bits` to a signed format, to nearest, ties to even."""
    largest = largest_value(float_format)
    beyond = {"inf": np.inf, "nan": np.nan, "saturate": largest}[float_format.overflow]
    exponent = np.maximum(bits >> 23 & 0xFF, 1).astype(np.int64)
    hidden = np.where(bits >> 23 & 0xFF, 1 << 23, 0)
    significand = (bits & 0x7FFFFF).astype(np.int64) | hidden
    # the result counts in units of 2^unit
    unit = np.maximum(exponent - 127, 1 - _bias(float_format)) - float_format.mantissa_bits
    shift = np.clip(unit - (exponent - 150), 0, 30)
    kept, rest, half = significand >> shift, significand & ((1 << shift) - 1), (1 << shift) >> 1
    kept += (rest > half) | ((rest == half) & (half > 0) & (kept & 1 == 1))
    with np.errstate(over="ignore"):
        magnitude = np.ldexp(kept.astype(np.float64), unit.astype(np.int32))
    magnitude = np.where(magnitude > largest, beyond, magnitude)
    signed = np.where(bits >> 31, -magnitude, magnitude).astype(np.float32)
    if float_format.specials is Specials.FNUZ:
        signed += 0.0  # there is no minus zero
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, np.float32(np.nan), signed)


def largest_value(float_format: FloatFormat) -> float:
    """Return the largest finite value, from how many bits there are and what the topmost codes mean."""
    top_exponent, top_mantissa = 2**float_format.exponent_bits - 1, 2**float_format.mantissa_bits - 1
    if float_format.specials is Specials.IEEE:
        top_exponent -= 1
    if float_format.specials is Specials.FN:
        top_mantissa -= 1
    significand = 1 + top_mantissa / 2**float_format.mantissa_bits
    return significand * 2.0 ** (top_exponent - _bias(float_format))


def _bias(float_format: FloatFormat) -> int:
    usual = 2 ** (float_format.exponent_bits - 1) - 1
    return usual + 1 if float_format.specials is Specials.FNUZ else usual
