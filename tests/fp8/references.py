"""Casts to few bits, one block at a time, by NumPy and ml_dtypes: nothing here is the package's own."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from amp_lessons.fp8 import Cast

DTYPES = {
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "fp4_e2m1": ml_dtypes.float4_e2m1fn,
}
LARGEST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "fp4_e2m1": 6.0}
MANTISSA = {"fp8_e4m3": 3, "fp8_e5m2": 2, "fp4_e2m1": 1}
F32 = np.float32


def dequantized(x: Tensor, cast: Cast) -> Tensor:
    """Cast a matrix to few bits and take it back, by loops over its blocks."""
    source = x.float().numpy()
    rows, columns = source.shape
    high, wide = cast.block[0] or rows, cast.block[1] or columns
    tensor_scale = F32(1)
    if cast.has_tensor_scale and source.any():
        tensor_scale = F32(np.abs(source).max() / F32(LARGEST[cast.element.name] * 448))
        tensor_scale = np.maximum(tensor_scale, np.finfo(F32).tiny)  # whose inverse float32 still holds
    out = np.empty_like(source)
    with np.errstate(all="ignore"):
        for top in range(0, rows, high):
            for left in range(0, columns, wide):
                block = source[top : top + high, left : left + wide]
                out[top : top + high, left : left + wide] = _block(block, cast, tensor_scale)
    return torch.from_numpy(out)


def _block(block: np.ndarray, cast: Cast, tensor_scale: np.float32) -> np.ndarray:
    amax, name = F32(np.abs(block).max()), cast.element.name
    if cast.rule == "none":
        return _elements(block, name)
    if not np.isfinite(amax) or not np.isfinite(tensor_scale):
        return np.full_like(block, np.nan)
    if cast.has_tensor_scale:
        scale = F32((amax / F32(LARGEST[name]) / tensor_scale).astype(ml_dtypes.float8_e4m3fn))
        if not scale:
            return np.zeros_like(block)
        return _elements(block * (F32(1) / tensor_scale / scale), name) * (scale * tensor_scale)
    if cast.rule == "exact":
        multiplier = min(F32(LARGEST[name]) / amax, np.finfo(F32).max) if amax else F32(1)
        return _elements(block * multiplier, name) * (F32(1) / multiplier)
    power = F32(2.0) ** max(exponent(float(amax), name, cast.rule), -127)
    return _elements(block / power, name) * power


def _elements(scaled: np.ndarray, name: str) -> np.ndarray:
    return scaled.clip(-LARGEST[name], LARGEST[name]).astype(F32).astype(DTYPES[name]).astype(F32)


def exponent(amax: float, name: str, rule: str) -> int:
    """Return the shared exponent of a block by exact arithmetic, before the range of E8M0 limits it."""
    if not amax:
        return -127
    if rule == "up":
        mantissa, power = math.frexp(amax / LARGEST[name])  # float64: exact enough to tell a power of two
        return power - 1 if mantissa == 0.5 else power
    if rule == "nearest":
        return round(math.log2(amax / LARGEST[name]))
    if rule == "even":
        mantissa, power = math.frexp(amax)
        steps = 2 ** (MANTISSA[name] + 1)
        amax = math.ldexp(math.floor(mantissa * steps + 0.5) / steps, power)
    return math.frexp(amax)[1] - 1 - (math.frexp(LARGEST[name])[1] - 1)


def difficult_matrix(rows: int = 33, columns: int = 50, seed: int = 0) -> Tensor:
    """Return numbers of every magnitude that a gradient has, with zeros, on sides that no block divides."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    x = x * torch.exp2(torch.randint(-40, 10, x.shape, generator=generator).float())
    x[torch.rand(x.shape, generator=generator) < 0.1] = 0.0
    return x


CONTENTS = ("zeros", "a row of zeros", "wide", "small", "subnormal", "large", "inf", "nan")


def filled(content: str, rows: int, columns: int) -> Tensor:
    """Return a matrix with what casts are known to fail at; "small" is far above what scales can hold."""
    if content == "wide":
        return difficult_matrix(rows, columns, seed=3)
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(3))
    if content in ("inf", "nan"):
        x[0, -1] = float(content)
    elif content == "a row of zeros":
        x[0] = 0.0
    return x * {"zeros": 0.0, "small": 2.0**-30, "subnormal": 2.0**-140, "large": 2.0**60}.get(content, 1.0)


def assert_same_bits(found: Tensor, right: Tensor) -> None:
    """A NaN is a NaN, whatever its payload; all other numbers are those."""
    torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)
