"""Rounding float32 to a smaller format with integers only: an independent check of what the package does."""

from __future__ import annotations

import numpy as np


def round_to_nearest_even(
    bits: np.ndarray, exponent_bits: int, mantissa_bits: int, largest: float, beyond: float
) -> np.ndarray:
    """Round the float32 values with these uint32 `bits`; above `largest` they become ±`beyond`, NaN stays."""
    exponent = np.maximum(bits >> 23 & 0xFF, 1).astype(np.int64)
    hidden = np.where(bits >> 23 & 0xFF, 1 << 23, 0)
    significand = (bits & 0x7FFFFF).astype(np.int64) | hidden
    lowest = 1 - (2 ** (exponent_bits - 1) - 1)
    unit = np.maximum(exponent - 127, lowest) - mantissa_bits  # the result counts in units of 2^unit
    shift = np.clip(unit - (exponent - 150), 0, 30)
    kept, rest, half = significand >> shift, significand & ((1 << shift) - 1), (1 << shift) >> 1
    kept += (rest > half) | ((rest == half) & (half > 0) & (kept & 1 == 1))
    with np.errstate(over="ignore"):
        magnitude = np.ldexp(kept.astype(np.float64), unit.astype(np.int32))
    magnitude = np.where(magnitude > largest, beyond, magnitude)
    signed = np.where(bits >> 31, -magnitude, magnitude).astype(np.float32)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, np.float32(np.nan), signed)
