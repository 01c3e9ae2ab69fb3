"""Arithmetic in a format, done in a wider one and rounded after each operation."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons.formats import FloatFormat
from amp_lessons.text.describing import describe


@dataclass(frozen=True)
class Arithmetic:
    """What fits into a dtype, or into a format that PyTorch has no dtype for.

    Values are kept in ``wide``, rounded: float64 for itself, float32 for all others. That gives the rounding
    of the exact sum, as float32 has more than twice the digits of any narrower format, and two (S. A.
    Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995).
    """

    of: torch.dtype | FloatFormat

    @property
    def wide(self) -> torch.dtype:
        """The dtype that values are kept in."""
        return torch.float64 if self.of is torch.float64 else torch.float32

    def rounded(self, values: Tensor) -> Tensor:
        """Round values, of ``wide``, to the format."""
        if isinstance(self.of, FloatFormat):
            return self.of.quantize(values)
        return values if self.of is self.wide else values.to(self.of).to(self.wide)

    def rounded_number(self, number: float) -> float:
        """Round one number to the format."""
        return self.rounded(torch.tensor(number, dtype=self.wide)).item()

    def stored(self, values: Tensor) -> Tensor:
        """Return rounded values in the dtype itself; in ``wide`` where PyTorch has none."""
        return values if isinstance(self.of, FloatFormat) else values.to(self.of)


def arithmetic(dtype: torch.dtype | FloatFormat) -> Arithmetic:
    """Return the arithmetic of a dtype. Raises TypeError for what is no floating dtype."""
    floating = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    if not floating and not isinstance(dtype, FloatFormat):
        raise TypeError(f"dtype is a floating dtype such as torch.bfloat16, not {describe(dtype)}")
    if dtype in _WITHOUT_SUMS:
        raise TypeError(
            f"dtype is one that sums can be kept in, as torch.bfloat16; {dtype} holds no sign or pairs"
        )
    return Arithmetic(dtype)


_WITHOUT_SUMS = {getattr(torch, name, None) for name in ("float8_e8m0fnu", "float4_e2m1fn_x2")} - {None}
