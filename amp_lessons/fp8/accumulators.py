"""Adding up a matrix product in an accumulator of few bits, as FP8 tensor cores of Hopper GPUs do.

DeepSeek-V3 found it there (https://arxiv.org/abs/2412.19437, section 3.5.2): an instruction aligns 32
products to the largest exponent among them, keeps the highest 14 bits of each, cuts off the rest, and adds;
the sum stays in a register of 14 bits. What is small beside the sum is lost, and always towards zero. Their
cure is to move the sum to an fp32 register every 128 products and to begin again. This is a model of those
words; it has not been compared with such a GPU bit by bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.devices import fp32_products
from amp_lessons.formats import FORMATS, relative_error, rounding
from amp_lessons.fp8.recipes import FP32, FP32_BITS, Accumulation, Cast
from amp_lessons.fp8.scale_rules import scales

_TILE = 2**17  # products at a time: few enough to stay in a processor's cache


def accumulate(left: Tensor, right: Tensor, accumulation: Accumulation = FP32) -> Tensor:
    """Return ``left`` (rows, inner) times the transpose of ``right`` (columns, inner), as float32.

    Both are float32 and used as they are: round them to a small format first, so that their products are
    exact. Raises TypeError or ValueError for anything else.
    """
    for name, matrix in (("left", left), ("right", right)):
        require(matrix, Tensor, name, "a float32 matrix such as torch.randn(4, 4)")
    require(accumulation, Accumulation, "accumulation", "an fp8.Accumulation such as fp8.FP32")
    if left.dim() != 2 or right.dim() != 2 or left.shape[1] != right.shape[1]:
        shapes = f"{tuple(left.shape)} and {tuple(right.shape)}"
        raise ValueError(f"left and right are matrices (rows, inner) and (columns, inner), not {shapes}")
    left, right = rounding.as_float32(left), rounding.as_float32(right)
    if accumulation.bits is None:
        with fp32_products(tf32=False):
            return left @ right.t().contiguous()  # as PyTorch's kernel has it: some BLAS add in another order
    total = left.new_zeros(left.shape[0], right.shape[0])
    if not left.shape[1]:
        return total
    interval = accumulation.promote_every or left.shape[1]
    for first, second in zip(left.split(interval, 1), right.split(interval, 1), strict=True):
        total += few_bits(first, second, accumulation)
    return total


def few_bits(left: Tensor, right: Tensor, accumulation: Accumulation) -> Tensor:
    """Return left · rightᵀ, added up in one register of few bits and never promoted; in tiles of rows."""
    rows = max(1, _TILE // max(1, right.shape[0] * accumulation.together))
    lasts = (deque(registers(part, right, accumulation), maxlen=1) for part in left.split(rows))
    return torch.cat([last for (last,) in lasts])


def registers(left: Tensor, right: Tensor, accumulation: Accumulation) -> Iterator[Tensor]:
    """Yield what is in the register after each instruction; the next one changes it."""
    bits = accumulation.bits or FP32_BITS
    total = left.new_zeros(left.shape[0], right.shape[0])
    # The inner dimension comes first: adding along it then runs through memory in order
    columns, rows = left.t().unsqueeze(2), right.t().unsqueeze(1)
    for a, b in zip(columns.split(accumulation.together), rows.split(accumulation.together), strict=True):
        products = a * b
        largest = torch.maximum(products.amax(0), -products.amin(0)).maximum(total.abs())
        spacing = _spacing(largest, bits)
        counted = _in_whole(products, spacing).sum(0) + _in_whole(total, spacing)
        total = counted.mul_(spacing)
        spacing = _spacing(total, bits)
        total = _in_whole(total, spacing).mul_(spacing)
        yield total


def _in_whole(x: Tensor, spacing: Tensor) -> Tensor:
    """Count whole spacings in each element, in place: by a division, for trunc takes ten times as long."""
    return x.div_(spacing, rounding_mode="trunc")


def _spacing(largest: Tensor, bits: int) -> Tensor:
    """Return the value of the last of ``bits`` bits, the first of which is the leading one of ``largest``."""
    # Far above 0 even for 23 bits, so that dividing by it is exact
    return rounding.power_of_two_below(largest).clamp_(2.0**-100, 2.0**120).mul_(2.0 ** (1 - bits))


# --- what becomes of dot products as they get longer

_SIDE = 8  # rows on either side: 64 sums
_SHORTEST = 32  # products that one instruction adds


@dataclass(frozen=True)
class LongSums:
    """Sums of products in eight bits, cut off at each of ``lengths``.

    ``left`` and ``right`` are float32 matrices (rows, longest) whose products are exact. ``exact`` has their
    sums in float64, (lengths, rows, rows). ``cast_errors`` says, for each length, how wrong the sums are
    before anything is added up, because the operands were cast.
    """

    left: Tensor
    right: Tensor
    lengths: tuple[int, ...]
    exact: Tensor
    cast_errors: tuple[float, ...]

    def errors(self, accumulation: Accumulation) -> tuple[float, ...]:
        """Return ‖error‖ / ‖exact‖ of the sums of each length, added up like this.

        Raises ValueError for instructions that add up other than 32 products.
        """
        if require(accumulation, Accumulation, "accumulation", "an fp8.Accumulation").together != _SHORTEST:
            raise ValueError(f"together is {_SHORTEST} here, not {accumulation.together}")
        if accumulation.bits is None:
            sums = [accumulate(self.left[:, :n], self.right[:, :n], accumulation) for n in self.lengths]
        else:
            sums = self._on_the_way(accumulation)
        return tuple(relative_error(a, b) for a, b in zip(sums, self.exact, strict=True))

    def _on_the_way(self, accumulation: Accumulation) -> list[Tensor]:
        """Walk along the longest sum once, and keep what it is at each of the lengths."""
        interval = accumulation.promote_every or self.left.shape[1]
        promoted, kept, length = torch.zeros_like(self.exact[0], dtype=torch.float32), [], 0
        for left, right in zip(self.left.split(interval, 1), self.right.split(interval, 1), strict=True):
            for register in registers(left, right, accumulation):
                length += accumulation.together
                if length in self.lengths:
                    kept.append(promoted + register)
            promoted = promoted + register
        return kept


def long_sums(longest: int = 2**14, *, positive: bool = False, seed: int = 0) -> LongSums:
    """Return sums of up to ``longest`` products of normal numbers that were cast to E4M3.

    Lengths are the powers of two from 32 on. If ``positive``, both factors are, as behind a ReLU: then sums
    grow with their length, otherwise with its root. Raises TypeError or ValueError for others.
    """
    require_whole(longest, "longest", least=_SHORTEST)
    require(positive, bool, "positive", "True or False")
    lengths = tuple(2**k for k in range(_SHORTEST.bit_length() - 1, longest.bit_length()))
    generator = torch.Generator().manual_seed(require_whole(seed, "seed", least=0))
    left, right = (
        torch.randn(_SIDE, lengths[-1], generator=generator, dtype=torch.float32) for _ in range(2)
    )
    if positive:
        left, right = left.abs(), right.abs()
    small_left, small_right = _small(left), _small(right)
    wanted, exact = _sums(left, right, lengths), _sums(small_left, small_right, lengths)
    errors = tuple(relative_error(a, b) for a, b in zip(exact, wanted, strict=True))
    return LongSums(small_left, small_right, lengths, exact, errors)


def _small(x: Tensor) -> Tensor:
    # By a scale that is a power of two, which leaves products exact in float32
    multiplier = scales(x.abs().amax(), Cast(rule="up")).multiplier
    return FORMATS["fp8_e4m3"].quantize(x * multiplier) / multiplier


def _sums(left: Tensor, right: Tensor, lengths: tuple[int, ...]) -> Tensor:
    left, right = left.double(), right.double()
    return torch.stack([left[:, :n] @ right[:, :n].t() for n in lengths])
