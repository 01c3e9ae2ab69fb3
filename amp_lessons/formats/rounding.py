"""Rounding whole tensors to a coarser grid, by arithmetic that any device can do.

A number format is a grid whose spacing doubles at every power of two and stops shrinking at the smallest
normal number. So rounding takes three steps: find the spacing at each element, count in units of it, round
the count. Dividing and multiplying by a power of two is exact, so the only rounding is the one asked for.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from amp_lessons.precisions import HALVES

# all exponent bits of float32 set, and no other; made of no tensor, whose dtype can change
_INFINITY_BITS = 0xFF << 23
_LARGEST_POWER = 2.0 ** (math.frexp(torch.finfo(torch.float32).max)[1] - 1)


def as_float32(x: Tensor) -> Tensor:
    """Return ``x`` detached and in float32. Raises ``TypeError`` unless float32 holds its dtype exactly."""
    if not isinstance(x, Tensor):
        raise TypeError(f"Give a float32 tensor, not {type(x).__name__}: torch.tensor(...) makes one.")
    if x.dtype not in (torch.float32, *HALVES.values()):
        raise TypeError(
            f"Give a float32 tensor, not {x.dtype}: x.float() converts it (and rounds float64 first)."
        )
    return x.detach().to(torch.float32)


def power_of_two_below(x: Tensor) -> Tensor:
    """Return 2^⌊log2|x|⌋ for each element of the float32 tensor ``x``, whose exponent alone is left.

    Zero and float32's own subnormals give 0; infinities and NaN give infinity.
    """
    return (x.view(torch.int32) & _INFINITY_BITS).view(torch.float32)


def spacing_at(x: Tensor, mantissa_bits: int, smallest_normal: float) -> Tensor:
    """Return the gap between neighbouring values of a format, at the binade of each element of ``x``.

    ``x`` is float32 of any shape, and so is the result. The spacing is 2^(⌊log2|x|⌋ − mantissa_bits), and
    below ``smallest_normal`` it stays what it is there. Infinities and NaN get the spacing of the last
    binade.
    """
    return power_of_two_below(x).clamp_(smallest_normal, _LARGEST_POWER).mul_(2.0**-mantissa_bits)


def to_nearest(x: Tensor, spacing: Tensor) -> Tensor:
    """Return the multiple of ``spacing`` nearest to each element of ``x``, ties to the even multiple."""
    return x.div(spacing).round_().mul_(spacing)


def overflow_to_infinity_(rounded: Tensor, last_power: int) -> Tensor:
    """Make infinite, in place, what was rounded to 2^(last_power + 1) or more; the rest keeps its value.

    The way there is over the edge of float32 and back, which costs a tenth of a comparison and a masked fill.
    """
    headroom = _LARGEST_POWER / 2.0**last_power
    return rounded.mul_(headroom).div_(headroom)


def to_random_side(x: Tensor, spacing: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Return one of the two multiples of ``spacing`` around each element of ``x``, the nearer one more often.

    The upper one is taken with probability (x − lower) / spacing, so the expected value is ``x`` itself, and
    an element that is already a multiple never moves. ``generator`` must live on the device of ``x``.
    """
    steps = x / spacing
    lower = steps.floor()
    chance = torch.rand(x.shape, generator=generator, dtype=torch.float32, device=x.device)
    return (lower + (chance < steps - lower)).mul_(spacing)
