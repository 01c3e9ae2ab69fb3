"""The place of a tensor's elements on the number line of a small format under a scale, and its cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.formats import FORMATS, FloatFormat, relative_error
from amp_lessons.formats.floats import require_format
from amp_lessons.fp8.layer import Quantized, first_beyond, quantize
from amp_lessons.fp8.recipes import ROW, Cast
from amp_lessons.scaling.fates import FATES

_MOST_EXPONENT = 100  # float32 holds scale and inverse alike
_LOWEST_BINADE = -150  # below float32's smallest: where a scale of zero has put everything


@dataclass(frozen=True)
class Placement:
    """A float32 tensor beside what a cast has made of it."""

    tensor: Tensor
    quantized: Quantized

    @property
    def at_stake(self) -> int:
        """The number of elements that are not zero."""
        return int(torch.count_nonzero(self.tensor))

    @cached_property
    def fates(self) -> Mapping[str, Mapping[int, int]]:
        """The fates of the elements that are not zero: {fate: {binade of element / scale: how many}}.

        The fates are those of ``scaling.Census``; "overflowed" are those that saturate.
        """
        alive, element = self.tensor != 0, self.quantized.cast.element
        scale, values = self.quantized.element_scales, self.quantized.values[alive].abs()
        stored = torch.where(scale > 0, self.tensor / scale, 0.0)[alive].abs()
        binades = torch.where(stored > 0, torch.frexp(stored).exponent - 1, _LOWEST_BINADE)
        lost, beyond = values == 0, stored >= first_beyond(element)
        tiny = ~lost & (values < element.smallest_normal)
        by_fate = {}
        for fate, found in zip(FATES, (lost, tiny, ~(lost | tiny | beyond), beyond), strict=True):
            binade, counts = torch.unique(binades[found], return_counts=True)
            by_fate[fate] = dict(zip(binade.tolist(), counts.tolist(), strict=True))
        return by_fate

    def count(self, fate: str) -> int:
        """Return how many elements met this fate."""
        return sum(self.fates[fate].values())

    def relative_error(self, without: tuple[int, ...] | None = None) -> float:
        """Return ‖error‖ / ‖tensor‖, leaving out the element at the index ``without`` if there is one."""
        back, exact = self.quantized.dequantize(), self.tensor
        if without is not None:
            back, exact = back.clone(), exact.clone()
            back[without] = exact[without] = 0
        return relative_error(back, exact)


def place(tensor: Tensor, cast: Cast) -> Placement:
    """Return what ``cast`` makes of a float32 tensor, by scales found from the largest magnitudes.

    Raises TypeError or ValueError for what is no tensor of finite numbers, at least one of them not zero.
    """
    tensor = _finite(tensor)
    return Placement(tensor, quantize(tensor, cast))


def place_by_hand(tensor: Tensor, element: FloatFormat, exponent: int) -> Placement:
    """Return what a cast to ``element`` makes of a tensor that is multiplied by 2^``exponent`` first.

    Raises TypeError or ValueError as ``place`` does.
    """
    tensor, element = _finite(tensor), require_format(element, "element")
    if require_whole(exponent, "exponent", least=-_MOST_EXPONENT) > _MOST_EXPONENT:
        raise ValueError(f"exponent is at most {_MOST_EXPONENT}, not {exponent}")
    # A cast whose largest magnitude is this one has exactly that power of two for a multiplier
    amax = torch.tensor(math.ldexp(element.max, -exponent), dtype=torch.float32)
    return Placement(tensor, quantize(tensor, Cast(element), amax=amax))


def fitting_exponent(tensor: Tensor, element: FloatFormat) -> int:
    """Return the largest exponent of a multiplier at which no element lies beyond the format's last value.

    Raises TypeError or ValueError as ``place`` does.
    """
    largest = _finite(tensor).abs().max().item()
    return math.floor(math.log2(require_format(element, "element").max / largest))


def granularities(element: FloatFormat) -> dict[str, Cast]:
    """Return, by who shares a scale, the casts to ``element`` that recipes use, the coarsest first.

    Tensor, row and 1 × 128 (DeepSeek-V3's) have exact scales in fp32, 1 × 32 powers of two (MX), 1 × 16
    scales in E4M3 beside one of the tensor (NVFP4).
    """
    require_format(element, "element")
    casts = (
        Cast(element),
        Cast(element, ROW),
        Cast(element, (1, 128)),
        Cast(element, (1, 32), "up", FORMATS["e8m0"]),
        Cast(element, (1, 16), scale=FORMATS["fp8_e4m3"], has_tensor_scale=True),
    )
    return {cast.granularity: cast for cast in casts}


def _finite(tensor: Tensor) -> Tensor:
    if require(tensor, Tensor, "tensor", "a tensor such as torch.randn(64, 512)").is_complex():
        raise TypeError(f"tensor holds real numbers, not {tensor.dtype}")
    tensor = tensor.detach().float()
    if not (tensor.isfinite().all() and tensor.any()):
        raise ValueError("tensor holds finite numbers, at least one of them not zero")
    return tensor
