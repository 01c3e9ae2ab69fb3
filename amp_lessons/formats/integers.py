"""Weights as small whole numbers with a scale for each group: how INT8 and INT4 are stored for serving."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require_whole
from amp_lessons.formats import rounding

SCALE_BITS = 16  # scales are fp16, as GPTQ and AWQ store them


@dataclass(frozen=True)
class Grouped:
    """A weight as whole numbers of ``bits`` bits: what it stands for is codes · scales.

    ``codes`` are int8 in the weight's shape; ``scales`` are float16, (..., groups), one for each ``group``
    neighbours of a row.
    """

    codes: Tensor
    scales: Tensor
    bits: int
    group: int

    def dequantize(self) -> Tensor:
        """Return the float32 weight that this stands for."""
        width = self.codes.shape[-1]
        return self.codes * self.scales.float().repeat_interleave(self.group, -1)[..., :width]

    @property
    def bits_per_weight(self) -> float:
        """The bits of one weight, its part of the scales included."""
        return bits_per_weight(self.codes.shape[-1], self.bits, self.group)


def bits_per_weight(width: int, bits: int, group: int | None) -> float:
    """Return what a weight takes in rows of ``width``, the scale that ``group`` neighbours share included.

    For None a row is one group; a row's last group may be shorter.
    """
    groups = 1 if group is None else -(-width // group)
    return bits + SCALE_BITS * groups / width


def by_groups(weight: Tensor, bits: int = 4, group: int | None = 32) -> Grouped:
    """Return ``weight`` (..., inputs) in 2 to 8 ``bits``, one scale for each ``group`` of a row's inputs.

    For None a row is one group; a row's last group may be shorter. A scale is the largest magnitude of its
    group over 2^(bits - 1) - 1, rounded to fp16; zero is exact. Raises ValueError for inf and NaN, for an
    empty weight, for numbers too large or too small for a scale in fp16, for other bits and for no group;
    TypeError for what is no tensor of fp32, fp16 or bf16.
    """
    weight = rounding.as_float32(weight)
    if require_whole(bits, "bits", least=2) > 8:
        raise ValueError(f"bits is a whole number from 2 to 8, not {bits}")
    if not weight.dim() or not weight.numel():
        raise ValueError(f"weight has at least one row with one number, not the shape {tuple(weight.shape)}")
    width = weight.shape[-1]
    size = width if group is None else min(require_whole(group, "group"), width)
    top = 2 ** (bits - 1) - 1
    groups = pad(weight, (0, -width % size)).unflatten(-1, (-1, size))
    largest = groups.abs().amax(-1)
    scales = (largest / top).half()
    if not scales.isfinite().all() or bool(((scales == 0) & (largest > 0)).any()):
        raise ValueError("a group's largest weight over its largest code is no fp16 number; scale the weight")
    divisors = torch.where(scales == 0, 1.0, scales.float())  # a group of zeros
    codes = (groups / divisors[..., None]).round().clamp(-top - 1, top).flatten(-2)[..., :width]
    return Grouped(codes.to(torch.int8), scales, bits, size)
