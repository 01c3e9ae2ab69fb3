"""A tensor in a small format beside its scales, and what that cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require
from amp_lessons.formats import FORMATS, rounding
from amp_lessons.fp8.recipes import Cast
from amp_lessons.fp8.scale_rules import scales


@dataclass(frozen=True)
class Quantized:
    """A tensor in a small format beside its scales: what it stands for is values · scales · tensor_scale.

    ``values`` are float32 numbers of the element format, in the shape of the tensor. ``scales`` and ``amax``
    (largest magnitudes) have one entry per block: (blocks of rows, blocks of columns), where all dimensions
    but the last count as rows. ``saturated`` counts elements that lay beyond the last value, by half its
    spacing or more, and became it; ``underflowed`` those that were not zero and became it. Both are None
    where nobody asked for them.
    """

    cast: Cast
    values: Tensor
    scales: Tensor
    tensor_scale: Tensor
    amax: Tensor
    saturated: int | None = None
    underflowed: int | None = None

    def dequantize(self) -> Tensor:
        """Return the float32 tensor that this stands for."""
        if not self.values.numel():
            return self.values.clone()
        scale = self.scales * self.tensor_scale
        if scale.numel() == 1:
            return (self.values * scale.reshape(())).contiguous()
        blocks = _split(_as_matrix(self.values), self.cast)
        return _join(blocks * scale[:, None, :, None], self.values)

    @property
    def element_scales(self) -> Tensor:
        """The factor that takes each element back: float32, in the shape of the tensor."""
        return replace(self, values=torch.ones_like(self.values)).dequantize()

    def transposed(self) -> Quantized:
        """Return the transpose of a matrix.

        Raises ValueError where blocks are not as wide as they are high: who needs the transpose then casts
        the transposed tensor, not what a first cast has left of it.
        """
        if not self.cast.is_symmetric or self.values.dim() != 2:
            raise ValueError(
                f"only a matrix with square blocks can be transposed, not a tensor of {self.values.dim()} "
                f"dimensions with scales per {self.cast.granularity}: cast its transpose"
            )
        return replace(self, values=self.values.t(), scales=self.scales.t(), amax=self.amax.t())

    @property
    def bytes_of_values(self) -> float:
        """The bytes of the elements when they are stored without gaps."""
        return self.values.numel() * self.cast.element.bits / 8

    @property
    def bytes_of_scales(self) -> float:
        """The bytes of all scales; nothing under the rule "none"."""
        if self.cast.rule == "none":
            return 0.0
        tensor_scale_bits = FORMATS["fp32"].bits * self.cast.has_tensor_scale
        return (self.scales.numel() * self.cast.scale.bits + tensor_scale_bits) / 8


def quantize(
    x: Tensor,
    cast: Cast,
    *,
    amax: Tensor | None = None,
    generator: torch.Generator | None = None,
    count: bool = True,
) -> Quantized:
    """Return ``x`` (fp32, fp16 or bf16, any shape) in few bits; every dimension but the last counts as rows.

    The last block of a side that the block's size does not divide is a shorter one. What is too large
    saturates, on every version of PyTorch; what shares a scale with an infinity or a NaN becomes NaN.
    ``amax`` is what the scale is made of instead of the largest magnitude of each block, one number for all
    or one each: an infinity then saturates. ``generator`` is for casts that round stochastically,
    ``count=False`` saves the counting. Raises TypeError or ValueError for anything else.
    """
    require(cast, Cast, "cast", "an fp8.Cast such as fp8.Cast(block=fp8.ROW)")
    require(generator, (torch.Generator, type(None)), "generator", "a torch.Generator, or None")
    require(count, bool, "count", "True or False")
    x = rounding.as_float32(x)
    if not x.numel():
        return _nothing(x, cast)
    blocks = _split(_as_matrix(x), cast)
    seen = blocks.abs().amax((1, 3))
    used = scales(seen if amax is None else _expand(amax, seen), cast)
    scaled = blocks * used.multiplier[:, None, :, None]
    rounded = _round(scaled, cast, generator)
    counts = (_saturated(scaled, cast), _underflowed(blocks, rounded)) if count else (None, None)
    return Quantized(cast, _join(rounded, x), used.scale, used.tensor_scale, seen, *counts)


def _round(scaled: Tensor, cast: Cast, generator: torch.Generator | None) -> Tensor:
    within = scaled.clamp(-cast.element.max, cast.element.max)
    if cast.stochastic:
        return cast.element.round_stochastically(within, generator)
    return cast.element.quantize_by_rounding(
        within
    )  # on a CPU three times as fast as the cast there and back


def _saturated(scaled: Tensor, cast: Cast) -> int:
    return int((scaled.abs() >= cast.element.max + cast.element.spacing(cast.element.max) / 2).sum())


def _underflowed(blocks: Tensor, rounded: Tensor) -> int:
    return int(((rounded == 0) & (blocks != 0)).sum())


def _as_matrix(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)


def _grid(rows: int, columns: int, cast: Cast) -> tuple[int, int]:
    """Return how high and how wide a block is."""
    high, wide = cast.block
    return rows if high is None else high, columns if wide is None else wide


def _split(matrix: Tensor, cast: Cast) -> Tensor:
    """View a matrix as (blocks of rows, rows, blocks of columns, columns), filled up with zeros."""
    rows, columns = matrix.shape
    high, wide = _grid(rows, columns, cast)
    missing = (0, -columns % wide, 0, -rows % high)
    if any(missing):
        matrix = pad(matrix, missing)
    return matrix.reshape(matrix.shape[0] // high, high, matrix.shape[1] // wide, wide)


def _join(blocks: Tensor, like: Tensor) -> Tensor:
    if blocks.shape[2] == 1 and blocks.numel() == like.numel():
        return blocks.reshape(like.shape)  # one block wide and nothing filled up: the elements are in order
    columns = like.shape[-1] if like.dim() else 1
    matrix = blocks.flatten(2).flatten(0, 1)
    return matrix[: like.numel() // columns, :columns].reshape(like.shape)


def _expand(amax: Tensor, seen: Tensor) -> Tensor:
    require(amax, Tensor, "amax", "a tensor with one largest magnitude, or with one per block")
    try:
        return amax.detach().to(seen).expand_as(seen)
    except RuntimeError:
        raise ValueError(
            f"amax is one number, or one per block, here {tuple(seen.shape)}, not {tuple(amax.shape)}"
        ) from None


def _nothing(x: Tensor, cast: Cast) -> Quantized:
    columns = x.shape[-1]
    rows = x[..., 0].numel() if columns else 0
    high, wide = (max(size, 1) for size in _grid(rows, columns, cast))
    no_scales = x.new_ones(-(-rows // high), -(-columns // wide))
    return Quantized(cast, x, no_scales, x.new_ones(()), no_scales * 0, 0, 0)
