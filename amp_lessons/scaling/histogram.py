"""Count floating-point magnitudes by binade and by the thresholds they exceed: the inner loop of the census.

It is written for speed, and rests on one fact: read as integers, the bits of non-negative IEEE numbers are
ordered as the numbers are. So a value's binade is a shift of its bits, and "does its magnitude exceed this
threshold?" is an integer comparison. Neither a logarithm nor a cast to the target format is computed per
value: the cost is one integer histogram, plus one comparison for each threshold whose binade is populated at
all.

On the CPU the work is done by NumPy: `torch.gt` and `torch.count_nonzero` take about five times as long, and
PyTorch's pool of threads, woken after a pause, may take longer than all of the counting, as it would at each
move of a slider.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

CPU_CHUNK = 1 << 19  # a chunk and its temporaries stay in the caches; less, and threads wait for each other
SMALLEST_SHARE = 1 << 21  # below that a second thread costs more than it brings
DEVICE_CHUNK = 1 << 22  # enough to fill a GPU, at some 50 MiB of temporaries


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
    """Return the layout to count `dtype` in: fp64's for fp64, else fp32's, which holds the rest exactly."""
    counted, bits_dtype = (
        (torch.float64, torch.int64) if dtype == torch.float64 else (torch.float32, torch.int32)
    )
    mantissa_bits = -int(math.log2(torch.finfo(counted).eps))
    return Layout(counted, bits_dtype, mantissa_bits, torch.finfo(counted).bits - 1 - mantissa_bits)


def bits_of(values: Tensor, layout: Layout) -> Tensor:
    """Return the bits of ``values`` as integers, converted first where they are of a narrower dtype."""
    return values.to(layout.dtype).view(layout.bits_dtype)


class Tally:
    """Running counts of one layout's magnitudes, against thresholds given as bit patterns in ascending order.

    A magnitude is of class k when it exceeds exactly k of the thresholds.
    """

    def __init__(self, layout: Layout, thresholds: tuple[int, ...]) -> None:
        self.layout = layout
        self.thresholds = thresholds
        self.zero = 0
        self._per_exponent = np.zeros(1 << layout.exponent_bits, np.int64)
        self._above = np.zeros(len(thresholds), np.int64)  # the threshold, within the threshold's own binade
        self._subnormal = np.zeros((layout.mantissa_bits, len(thresholds) + 1), np.int64)

    @property
    def nonfinite(self) -> int:
        """How many values were inf or NaN."""
        return int(self._per_exponent[-1])

    def by_binade(self) -> dict[int, list[int]]:
        """Return {floor(log2|value|): [how many of class 0, class 1, …]} of the finite non-zero values."""
        per_exponent = self._per_exponent[1:-1, None]
        exponent = np.arange(1, len(per_exponent) + 1)[:, None]
        threshold_exponent = np.array(self.thresholds) >> self.layout.mantissa_bits
        above = np.where(exponent > threshold_exponent, per_exponent, 0)
        above = np.where(exponent == threshold_exponent, self._above, above)
        normal = -np.diff(above, axis=1, prepend=per_exponent, append=0)
        counts = np.concatenate([self._subnormal, normal])
        return {
            self.layout.lowest_binade + int(row): counts[row].tolist()
            for row in np.flatnonzero(counts.any(axis=1))
        }

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally with the same layout and thresholds."""
        self.zero += other.zero
        self._per_exponent += other._per_exponent
        self._above += other._above
        self._subnormal += other._subnormal

    def add(self, values: Tensor) -> None:
        """Count a flat tensor on any device, of any dtype that `layout_of` maps to this layout."""
        if values.device.type != "cpu":
            self._add_chunks(values.split(DEVICE_CHUNK), _DeviceMagnitudes(self.layout))
            return
        workers = min(torch.get_num_threads(), len(values) // SMALLEST_SHARE)
        if workers <= 1:
            self._add_on_cpu(values)
        else:
            for share in _threads(workers).map(self._tally_share, values.tensor_split(workers)):
                self.merge(share)

    def _tally_share(self, values: Tensor) -> Tally:
        share = Tally(self.layout, self.thresholds)
        share._add_on_cpu(values)
        return share

    def _add_on_cpu(self, values: Tensor) -> None:
        self._add_chunks(values.split(CPU_CHUNK), _CpuMagnitudes(self.layout, min(len(values), CPU_CHUNK)))

    def _add_chunks(self, chunks: Iterable[Tensor], magnitudes: _CpuMagnitudes | _DeviceMagnitudes) -> None:
        for chunk in chunks:
            magnitudes.load(chunk)
            self._add_magnitudes(magnitudes)

    def _add_magnitudes(self, magnitudes: _CpuMagnitudes | _DeviceMagnitudes) -> None:
        per_exponent = magnitudes.per_exponent()
        self._per_exponent += per_exponent
        for k, threshold in enumerate(self.thresholds):
            exponent = threshold >> self.layout.mantissa_bits
            if exponent and per_exponent[exponent]:
                self._above[k] += magnitudes.exceeding(threshold) - per_exponent[exponent + 1 :].sum()
        if per_exponent[0]:
            subnormal = magnitudes.exceeding(0) - per_exponent[1:].sum()
            self.zero += int(per_exponent[0] - subnormal)
            if subnormal:
                self._add_subnormal(magnitudes.subnormal())

    def _add_subnormal(self, tiny: Tensor) -> None:
        # The bits of a subnormal say how many times the smallest one it is; fp64 holds that integer exactly.
        row = torch.frexp(tiny.double()).exponent.long() - 1
        exceeded = sum((tiny > threshold).long() for threshold in self.thresholds)
        cells = torch.bincount(row * self._subnormal.shape[1] + exceeded, minlength=self._subnormal.size)
        self._subnormal += cells.view(self._subnormal.shape).numpy(force=True)


class _CpuMagnitudes:
    """One chunk at a time of magnitudes on the CPU, in buffers that are allocated once.

    Fresh temporaries would cost more than the arithmetic: the allocator gives each one back to the system.
    """

    def __init__(self, layout: Layout, capacity: int) -> None:
        self._layout = layout
        self._magnitude = torch.empty(capacity, dtype=layout.bits_dtype).numpy()
        self._exponent = np.empty(capacity, np.uint8 if layout.exponent_bits == 8 else np.int16)
        self._exceeds = np.empty(capacity, np.bool_)
        self._bits = self._magnitude[:0]
        self._is_masked = False

    def load(self, values: Tensor) -> None:
        self._bits = self._magnitude[:0]  # let go of the last chunk first, if it was converted
        self._bits, self._is_masked = bits_of(values, self._layout).numpy(), False

    def per_exponent(self) -> np.ndarray:
        exponent, shift = self._exponent[: len(self._bits)], self._layout.mantissa_bits
        if exponent.dtype == np.uint8:  # into which the sign no longer fits
            np.right_shift(self._bits, shift, out=exponent, casting="unsafe")
            return _count_bytes(exponent)
        np.right_shift(self._magnitudes(), shift, out=exponent, casting="unsafe")
        return np.bincount(exponent, minlength=1 << self._layout.exponent_bits)

    def _magnitudes(self) -> np.ndarray:
        magnitudes = self._magnitude[: len(self._bits)]
        if not self._is_masked:  # many a chunk has no value near any threshold
            np.bitwise_and(self._bits, self._layout.magnitude_mask, out=magnitudes)
            self._is_masked = True
        return magnitudes

    def exceeding(self, threshold: int) -> int:
        exceeds = self._exceeds[: len(self._bits)]
        return int(np.count_nonzero(np.greater(self._magnitudes(), threshold, out=exceeds)))

    def subnormal(self) -> Tensor:
        magnitude = torch.from_numpy(self._magnitudes())
        return magnitude[(magnitude > 0) & (magnitude < 1 << self._layout.mantissa_bits)]


def _count_bytes(codes: np.ndarray) -> np.ndarray:
    """Return how often each byte occurs, by what Pillow has for the histogram of an image of four bands.

    Neighbouring bytes are counted in tables of their own, so that the processor need not wait for one count
    before the next; NumPy's and PyTorch's `bincount` take twice as long.
    """
    from PIL import Image  # here: loading it takes longer than the rest of this package

    pixels = len(codes) // 4
    image = Image.frombuffer("CMYK", (pixels, 1), codes[: 4 * pixels], "raw", "CMYK", 0, 1)
    return np.reshape(image.histogram(), (4, 256)).sum(0) + np.bincount(codes[4 * pixels :], minlength=256)


class _DeviceMagnitudes:
    """One chunk at a time of magnitudes on a GPU."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def load(self, values: Tensor) -> None:
        self._magnitude = bits_of(values, self._layout) & self._layout.magnitude_mask

    def per_exponent(self) -> np.ndarray:
        exponent = self._magnitude >> self._layout.mantissa_bits
        return torch.bincount(exponent, minlength=1 << self._layout.exponent_bits).numpy(force=True)

    def exceeding(self, threshold: int) -> int:
        return int((self._magnitude > threshold).sum())

    def subnormal(self) -> Tensor:
        return self._magnitude[(self._magnitude > 0) & (self._magnitude < 1 << self._layout.mantissa_bits)]


@lru_cache(maxsize=1)
def _threads(workers: int) -> ThreadPoolExecutor:
    """Keep one pool: starting threads takes as long as counting 10⁵ values."""
    return ThreadPoolExecutor(workers, thread_name_prefix="census")


def flat_pieces(tensor: Tensor) -> Iterator[Tensor]:
    """Yield the values of a tensor with any strides as flat tensors, never copying more than one chunk."""
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    tensor = tensor.permute(by_stride)  # the order of the values is of no importance
    if tensor.is_contiguous():
        yield tensor.view(-1)
    elif tensor.numel() <= CPU_CHUNK:
        yield tensor.reshape(-1)
    else:
        longest = max(range(tensor.dim()), key=tensor.size)
        for half in tensor.tensor_split(2, dim=longest):
            yield from flat_pieces(half)
