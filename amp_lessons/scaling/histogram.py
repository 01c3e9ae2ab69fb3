"""Count floating-point magnitudes by binade and by the thresholds they exceed: the inner loop of the census.

It rests on one fact: read as integers, the bits of non-negative IEEE numbers are ordered as the numbers are.
So a value's binade is a shift of its bits, and "does its magnitude exceed this threshold?" is a comparison of
integers. No logarithm is computed, and no value is cast to the target format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

CPU_CHUNK = 1 << 15  # its temporaries stay in the caches, and PyTorch wakes no threads for so few values
DEVICE_CHUNK = 1 << 22  # enough to fill a GPU, at some 50 MiB of temporaries

Bits = np.ndarray | Tensor  # integers, which both sides shift and compare with the same operators


@dataclass(frozen=True)
class Layout:
    """Where sign, exponent and mantissa sit in the bits of fp32 or fp64."""

    dtype: torch.dtype
    bits_dtype: torch.dtype
    mantissa_bits: int
    exponent_bits: int

    @property
    def infinity(self) -> int:
        """The bits of +inf. Finite magnitudes are smaller, NaNs larger."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def magnitude_mask(self) -> int:
        """Every bit but the sign."""
        return (1 << (self.mantissa_bits + self.exponent_bits)) - 1

    @property
    def lowest_binade(self) -> int:
        """floor(log2) of the smallest subnormal: -149 for fp32."""
        return 2 - (1 << (self.exponent_bits - 1)) - self.mantissa_bits


def layout_of(dtype: torch.dtype) -> Layout:
    """Return the layout to count ``dtype`` in: fp64's for fp64, else fp32's, which holds the rest exactly."""
    counted, bits_dtype = (
        (torch.float64, torch.int64) if dtype == torch.float64 else (torch.float32, torch.int32)
    )
    mantissa_bits = -int(math.log2(torch.finfo(counted).eps))
    return Layout(counted, bits_dtype, mantissa_bits, torch.finfo(counted).bits - 1 - mantissa_bits)


class Tally:
    """Running counts of one layout's magnitudes, against thresholds given as bit patterns in ascending order.

    A magnitude is of class k when it exceeds exactly k of the thresholds. With ``norms`` those of the finite
    values and of class 0 are added up too, which takes nearly as long as the counting.
    """

    def __init__(self, layout: Layout, thresholds: tuple[int, ...], norms: bool = False) -> None:
        self._layout = layout
        self._thresholds = thresholds
        self._norms = norms
        self.zero = 0
        self.norm = 0.0  # of the finite values
        self.lowest_norm = 0.0  # of class 0
        self._per_exponent = np.zeros(1 << layout.exponent_bits, np.int64)
        self._exceeding = np.zeros(len(thresholds), np.int64)
        self._subnormal = np.zeros((layout.mantissa_bits, len(thresholds) + 1), np.int64)

    @property
    def nonfinite(self) -> int:
        """How many values were inf or NaN."""
        return int(self._per_exponent[-1])

    def by_binade(self) -> dict[int, list[int]]:
        """Return {floor(log2|value|): [how many of class 0, class 1, …]} of the finite non-zero values."""
        counts = np.concatenate([self._subnormal, self._normal()])
        return {
            self._layout.lowest_binade + int(row): counts[row].tolist()
            for row in np.flatnonzero(counts.any(axis=1))
        }

    def _normal(self) -> np.ndarray:
        """Return how many normal numbers there are of each exponent (from 1) and class."""
        per_exponent = self._per_exponent[1:-1, None]
        exponent = np.arange(1, len(per_exponent) + 1)[:, None]
        own = np.array(self._thresholds) >> self._layout.mantissa_bits  # the threshold's exponent
        above_in_own = self._exceeding - [self._per_exponent[k + 1 :].sum() for k in own]
        above = per_exponent * (exponent > own) + above_in_own * (exponent == own)
        return -np.diff(above, axis=1, prepend=per_exponent, append=0)

    def add(self, tensor: Tensor) -> None:
        """Count the values of a floating tensor of any shape, strides and device."""
        for chunk in _chunks(tensor, CPU_CHUNK if _on_cpu(tensor) else DEVICE_CHUNK):
            self._add_magnitudes(_magnitudes(chunk, self._layout))

    def _add_magnitudes(self, magnitudes: Bits) -> None:
        per_exponent = _bincount(magnitudes >> self._layout.mantissa_bits, len(self._per_exponent))
        self._per_exponent += per_exponent
        above = [magnitudes > threshold for threshold in self._thresholds]
        self._exceeding += [_count_true(each) for each in above]
        if self._norms:
            self._add_norms(magnitudes, above[0])
        if per_exponent[0]:  # zeros, which may be many, and subnormals, which are few
            zeros = _count_true(magnitudes == 0)
            self.zero += zeros
            if per_exponent[0] > zeros:
                is_subnormal = (magnitudes > 0) & (magnitudes < 1 << self._layout.mantissa_bits)
                self._add_subnormal(torch.as_tensor(magnitudes[is_subnormal]))

    def _add_norms(self, magnitudes: Bits, above_lowest: Bits) -> None:
        # What does not count is multiplied to the bits of 0.0: several times faster than leaving it out.
        finite = magnitudes * (magnitudes < self._layout.infinity) if self.nonfinite else magnitudes
        self.norm = math.hypot(self.norm, _norm(finite, self._layout))
        lowest = magnitudes * ~above_lowest
        self.lowest_norm = math.hypot(self.lowest_norm, _norm(lowest, self._layout))

    def _add_subnormal(self, tiny: Tensor) -> None:
        # The bits of a subnormal say how many times the smallest one it is; fp64 holds that integer exactly.
        rows = torch.frexp(tiny.double()).exponent - 1
        classes = sum((tiny > threshold).int() for threshold in self._thresholds)
        cells = _bincount(rows * self._subnormal.shape[1] + classes, self._subnormal.size)
        self._subnormal += cells.reshape(self._subnormal.shape)


def _on_cpu(tensor: Tensor) -> bool:
    return tensor.device.type == "cpu"


def _chunks(tensor: Tensor, largest: int) -> Iterator[Tensor]:
    """Yield the values of a tensor as flat tensors, never copying more than one chunk.

    What is not contiguous is halved across its largest stride, until it is contiguous or small.
    """
    if tensor.is_contiguous() or tensor.numel() <= largest:
        yield from tensor.reshape(-1).split(largest)
        return
    divisible = [dim for dim in range(tensor.dim()) if tensor.size(dim) > 1]
    for half in tensor.tensor_split(2, max(divisible, key=tensor.stride)):
        yield from _chunks(half, largest)


def _magnitudes(values: Tensor, layout: Layout) -> Bits:
    """Return the bits of values without the sign: on the CPU as an array, since NumPy compares faster."""
    bits = values.to(layout.dtype).view(layout.bits_dtype)
    return (bits.numpy() if _on_cpu(bits) else bits) & layout.magnitude_mask


def _norm(magnitudes: Bits, layout: Layout) -> float:
    values = torch.as_tensor(magnitudes).view(layout.dtype)
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _count_true(found: Bits) -> int:
    return int(np.count_nonzero(found) if isinstance(found, np.ndarray) else torch.count_nonzero(found))


def _bincount(cells: Bits, length: int) -> np.ndarray:
    return torch.bincount(torch.as_tensor(cells), minlength=length).numpy(force=True)


# --- where a number format begins and ends, found by asking PyTorch's own arithmetic.
#
# What becomes of a gradient g when it is scaled and cast depends on |g| alone, and changes at three
# magnitudes only: where it stops rounding to zero, where it reaches the normal numbers, and where it
# leaves the format. Each is found by a search with the multiplication and the cast that PyTorch really
# performs, so ties, double rounding, scales that are no power of two and formats that somebody adds
# tomorrow need no formula here.

PROBES = 1024


@lru_cache(maxsize=1024)
def fate_thresholds(source: torch.dtype, target: torch.dtype, scale: float) -> tuple[int, int, int]:
    """Return the largest |g| that underflows, that stays subnormal or less, and that does not overflow.

    They are bit patterns of ``source`` (fp32 or fp64), for the cast ``(g * scale).to(target)``. A magnitude
    overflows when it rounds beyond the largest finite value, whether the format then says inf (fp16), NaN or
    the largest value itself (float8_e4m3fn, before and since PyTorch 2.12).
    """
    limits = torch.finfo(target)

    def largest(is_beyond: Callable[[Tensor], Tensor]) -> int:
        layout = layout_of(source)
        return _last_before(layout, lambda values: is_beyond(values * scale))

    # Negated, because beyond its range a format may say NaN, which compares as neither below nor above.
    return (
        largest(lambda scaled: ~(_cast(scaled, target) == 0)),
        largest(lambda scaled: ~(_cast(scaled, target) < limits.smallest_normal)),
        # One binade lower the format has room to round up; the cast of the number itself might saturate.
        largest(lambda scaled: ~(_cast(scaled / 2, target) <= limits.max / 2)),
    )


def _last_before(layout: Layout, is_beyond: Callable[[Tensor], Tensor]) -> int:
    """Return the bits of the largest finite magnitude that is not beyond, where zero is not and inf is.

    Each round asks about a thousand magnitudes at once: PyTorch takes as long for one.
    """
    low, high = 0, layout.infinity
    while high - low > 1:
        step = max((high - low) // PROBES, 1)
        probes = low + step * torch.arange(-(-(high - low) // step), dtype=layout.bits_dtype)
        inside = int((~is_beyond(probes.view(layout.dtype))).sum())
        low, high = low + (inside - 1) * step, min(low + inside * step, high)
    return low


def _cast(value: Tensor, target: torch.dtype) -> Tensor:
    return value.to(target).to(torch.float64)
