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
from amp_lessons.formats import rounding

FP32_BITS = 24  # hidden bit included: an accumulator as wide as this is float32's own sum
_TILE = 2**17  # products at a time: few enough to stay in a processor's cache


@dataclass(frozen=True)
class Accumulation:
    """A register for sums of products: ``bits`` significant bits, the leading one included, or fp32 for None.

    ``promote_every`` products (None: never) the sum moves to an fp32 register. ``together`` products are
    aligned and added by one instruction.
    """

    bits: int | None = None
    promote_every: int | None = None
    together: int = 32

    def __post_init__(self) -> None:
        require_whole(self.together, "together")
        if self.bits is not None and require_whole(self.bits, "bits") > FP32_BITS - 1:
            raise ValueError(f"bits is at most {FP32_BITS - 1}, or None for fp32, not {self.bits}")
        if (
            self.promote_every is not None
            and require_whole(self.promote_every, "promote_every") % self.together
        ):
            raise ValueError(f"promote_every is a multiple of {self.together}, not {self.promote_every}")

    def __str__(self) -> str:
        if self.bits is None:
            return "fp32"
        promotion = f", to fp32 every {self.promote_every}" if self.promote_every else ""
        return f"{self.bits} bits{promotion}"


FP32 = Accumulation()


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
