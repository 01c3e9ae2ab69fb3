"""The error of longer and longer dot products, in accumulators of few bits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.formats import FORMATS, relative_error
from amp_lessons.fp8.accumulators import Accumulation, accumulate, registers
from amp_lessons.fp8.quantized import quantize
from amp_lessons.fp8.recipes import Cast

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
    return quantize(x, Cast(FORMATS["fp8_e4m3"], rule="up")).dequantize()


def _sums(left: Tensor, right: Tensor, lengths: tuple[int, ...]) -> Tensor:
    left, right = left.double(), right.double()
    return torch.stack([left[:, :n] @ right[:, :n].t() for n in lengths])
