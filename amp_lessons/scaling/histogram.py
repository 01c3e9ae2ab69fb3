"""Count floating-point magnitudes by binade and by the thresholds they exceed: the inner loop of the census.

It rests on one fact: read as integers, the bits of non-negative IEEE numbers are ordered as the numbers are.
So a value's binade is a shift of its bits, and "does its magnitude exceed this threshold?" is a comparison of
integers. No logarithm is computed, and no value is cast to the target format.

On the CPU that is counted by comparing. On a device every question waits for its answer, so there the
magnitudes are sorted, and looked up for all formats at once; nobody waits before somebody reads the counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

CPU_CHUNK = 1 << 15  # its temporaries stay in the caches, and PyTorch wakes no threads for so few values
DEVICE_CHUNK = 1 << 21  # enough to fill a GPU, at some 80 MiB of temporaries

Thresholds = tuple[int, int, int]  # bit patterns, ascending


@dataclass(frozen=True)
class Layout:
    """The place of sign, exponent and mantissa in the bits of fp32 or fp64."""

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


@dataclass(frozen=True)
class Counted:
    """Magnitudes by binade and class: of class k is what exceeds exactly k of the thresholds.

    ``by_binade`` is {floor(log2|value|): [how many of class 0, class 1, …]} of the finite non-zero values,
    ``norm`` that of the finite ones, ``lowest_norm`` that of class 0.
    """

    zero: int
    nonfinite: int
    by_binade: dict[int, list[int]]
    norm: float
    lowest_norm: float


class Tally:
    """Running counts of one layout's magnitudes on the CPU.

    With ``norms`` they are added up too, which takes nearly as long as the counting.
    """

    def __init__(self, layout: Layout, thresholds: Thresholds, norms: bool = False) -> None:
        self._layout = layout
        self._thresholds = thresholds
        self._norms = norms
        self._zero = 0
        self._norm = self._lowest_norm = 0.0
        self._per_exponent = np.zeros(1 << layout.exponent_bits, np.int64)
        self._exceeding = np.zeros(len(thresholds), np.int64)
        self._subnormal = np.zeros((layout.mantissa_bits, len(thresholds) + 1), np.int64)

    @property
    def counted(self) -> Counted:
        """The counts so far."""
        counts = np.concatenate([self._subnormal, self._normal()])
        by_binade = {
            self._layout.lowest_binade + int(row): counts[row].tolist()
            for row in np.flatnonzero(counts.any(axis=1))
        }
        return Counted(self._zero, int(self._per_exponent[-1]), by_binade, self._norm, self._lowest_norm)

    def _normal(self) -> np.ndarray:
        """Return how many normal numbers there are of each exponent (from 1) and class."""
        per_exponent = self._per_exponent[1:-1, None]
        exponent = np.arange(1, len(per_exponent) + 1)[:, None]
        own = np.array(self._thresholds) >> self._layout.mantissa_bits  # the threshold's exponent
        above_in_own = self._exceeding - [self._per_exponent[k + 1 :].sum() for k in own]
        above = per_exponent * (exponent > own) + above_in_own * (exponent == own)
        return -np.diff(above, axis=1, prepend=per_exponent, append=0)

    def add(self, tensor: Tensor) -> None:
        """Count the values of a floating tensor of any shape and strides."""
        for chunk in _chunks(tensor, CPU_CHUNK):
            bits: np.ndarray = chunk.to(self._layout.dtype).view(self._layout.bits_dtype).numpy()
            self._add_magnitudes(bits & self._layout.magnitude_mask)  # NumPy compares faster than PyTorch

    def _add_magnitudes(self, magnitudes: np.ndarray) -> None:
        per_exponent = _bincount(magnitudes >> self._layout.mantissa_bits, len(self._per_exponent))
        self._per_exponent += per_exponent
        above = [magnitudes > threshold for threshold in self._thresholds]
        self._exceeding += [np.count_nonzero(each) for each in above]
        if self._norms:
            self._add_norms(magnitudes, above[0])
        if per_exponent[0]:  # zeros, which may be many, and subnormals, which are few
            zeros = int(np.count_nonzero(magnitudes == 0))
            self._zero += zeros
            if per_exponent[0] > zeros:
                is_subnormal = (magnitudes > 0) & (magnitudes < 1 << self._layout.mantissa_bits)
                self._add_subnormal(torch.from_numpy(magnitudes[is_subnormal]))

    def _add_norms(self, magnitudes: np.ndarray, above_lowest: np.ndarray) -> None:
        # What does not count is multiplied to the bits of 0.0: several times faster than leaving it out.
        broken = self._per_exponent[-1]
        finite = magnitudes * (magnitudes < self._layout.infinity) if broken else magnitudes
        self._norm = math.hypot(self._norm, _norm(finite, self._layout))
        lowest = magnitudes * ~above_lowest
        self._lowest_norm = math.hypot(self._lowest_norm, _norm(lowest, self._layout))

    def _add_subnormal(self, tiny: Tensor) -> None:
        # The bits of a subnormal say how many times the smallest one it is; fp64 holds that integer exactly.
        rows = torch.frexp(tiny.double()).exponent - 1
        classes = sum((tiny > threshold).int() for threshold in self._thresholds)
        cells = _bincount((rows * self._subnormal.shape[1] + classes).numpy(), self._subnormal.size)
        self._subnormal += cells.reshape(self._subnormal.shape)


class SortedTally:
    """Running counts of one layout's magnitudes on a device, for several sets of thresholds."""

    def __init__(self, layout: Layout, thresholds: Iterable[Thresholds], device: torch.device) -> None:
        self._layout = layout
        self._thresholds = tuple(thresholds)
        self._edges, self._there = _edges(layout, self._thresholds, device)
        self._total = 0
        self._sums: Tensor | None = None  # up to each edge: how many, and their squares

    def add(self, tensor: Tensor) -> None:
        """Count the values of a floating tensor of any shape and strides; nobody waits for that."""
        for chunk in _chunks(tensor, DEVICE_CHUNK):
            bits = chunk.to(self._layout.dtype).view(self._layout.bits_dtype)
            magnitudes = (bits & self._layout.magnitude_mask).sort().values
            count = torch.searchsorted(magnitudes, self._there, right=True)
            values = magnitudes.view(self._layout.dtype).double()
            with _any_algorithm():
                squares = torch.cat([values.new_zeros(1), values.square().cumsum(0)])[count]
            sums = torch.stack([count.double(), squares])  # which holds whole numbers up to 2**53
            self._sums = sums if self._sums is None else self._sums + sums
            self._total += magnitudes.numel()

    @property
    def counted(self) -> list[Counted]:
        """The counts so far, for each of the thresholds; the device is waited for."""
        if self._sums is None:
            up_to, squares = np.zeros((2, len(self._edges)))
        else:
            up_to, squares = self._sums.numpy(force=True)
        return [self._held_against(each, up_to.astype(np.int64), squares) for each in self._thresholds]

    def _held_against(self, thresholds: Thresholds, up_to: np.ndarray, squares: np.ndarray) -> Counted:
        by_binade: dict[int, list[int]] = {}
        between = np.diff(up_to)
        for k in np.flatnonzero(between).tolist():
            edge = self._edges[k + 1]
            classes = by_binade.setdefault(self._binade(edge), [0] * (len(thresholds) + 1))
            classes[sum(edge > threshold for threshold in thresholds)] += int(between[k])
        lowest = self._edges.index(min(thresholds[0], self._edges[-1]))
        norm, lowest_norm = math.sqrt(squares[-1]), math.sqrt(squares[lowest])
        return Counted(int(up_to[0]), int(self._total - up_to[-1]), by_binade, norm, lowest_norm)

    def _binade(self, bits: int) -> int:
        subnormal = bits < 1 << self._layout.mantissa_bits
        place = bits.bit_length() - 1 if subnormal else (bits >> self._layout.mantissa_bits)
        return self._layout.lowest_binade + place + (0 if subnormal else self._layout.mantissa_bits - 1)


@lru_cache(maxsize=64)
def _edges(
    layout: Layout, thresholds: tuple[Thresholds, ...], device: torch.device
) -> tuple[list[int], Tensor]:
    """Return the largest bits of 0, of each binade and up to each threshold, ascending; also there."""
    subnormal = [1 << k for k in range(layout.mantissa_bits)]
    normal = [k << layout.mantissa_bits for k in range(1, 1 << layout.exponent_bits)]  # up to inf
    edges = {first - 1 for first in (*subnormal, *normal)}
    edges |= {min(each, layout.infinity - 1) for those in thresholds for each in those}
    return sorted(edges), torch.tensor(sorted(edges), dtype=layout.bits_dtype, device=device)


@contextmanager
def _any_algorithm() -> Iterator[None]:
    """Allow a device to add up in any order, which whoever trains may have forbidden."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def is_on_cpu(tensor: Tensor) -> bool:
    """Whether a tensor's values are counted where they are compared."""
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


def _norm(magnitudes: np.ndarray, layout: Layout) -> float:
    values = torch.from_numpy(magnitudes).view(layout.dtype)
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _bincount(cells: np.ndarray, length: int) -> np.ndarray:
    return torch.bincount(torch.from_numpy(cells), minlength=length).numpy()


# --- where a number format begins and ends, found by asking PyTorch's own arithmetic.
#
# What becomes of a gradient g when it is scaled and cast depends on |g| alone, and changes at three
# magnitudes only: where it stops rounding to zero, where it reaches the normal numbers, and where it
# leaves the format. Each is found by a search with the multiplication and the cast that PyTorch really
# performs, so ties, double rounding, scales that are no power of two and formats that somebody adds
# tomorrow need no formula here.

PROBES = 1024


@lru_cache(maxsize=1024)
def fate_thresholds(source: torch.dtype, target: torch.dtype, scale: float) -> Thresholds:
    """Return the largest |g| that underflows, that stays subnormal or less, and that does not overflow.

    They are bit patterns of ``source`` (fp32 or fp64), for the cast ``(g * scale).to(target)``. A magnitude
    overflows when it rounds beyond the largest finite value, whether the format then says inf (fp16), NaN or
    the largest value itself (float8_e4m3fn, before and since PyTorch 2.13).
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
