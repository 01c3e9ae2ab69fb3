"""From the largest magnitude that shares a scale to the scale.

Two words that are easily mixed up: an element is stored as x · ``multiplier``, and ``scale`` = 1 / multiplier
takes it back. A kernel is given the scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from amp_lessons._base.arguments import require, require_whole
from amp_lessons.formats import FORMATS, FloatFormat, rounding
from amp_lessons.fp8.recipes import ROLES, Cast, Role

_FP32 = torch.finfo(torch.float32)
_SMALLEST_POWER = 2.0**-127  # that of E8M0; float32 holds its inverse, but not that of a smaller one


@dataclass(frozen=True)
class Scales:
    """The multipliers of each block's elements, and what takes them back: scale · tensor_scale.

    All are float32; ``multiplier`` and ``scale`` have one entry per block, ``tensor_scale`` has no dimension.
    Where ``amax`` is infinite or NaN they are NaN, and so becomes everything that shares them.
    """

    multiplier: Tensor
    scale: Tensor
    tensor_scale: Tensor


def scales(amax: Tensor, cast: Cast) -> Scales:
    """Return the scales of blocks with these largest magnitudes: float32, any shape, at least one.

    Raises TypeError or ValueError for anything else.
    """
    require(cast, Cast, "cast", "an fp8.Cast such as fp8.Cast(block=fp8.ROW)")
    require(amax, Tensor, "amax", "a tensor of largest magnitudes")
    amax = rounding.as_float32(amax)
    if not amax.numel():
        raise ValueError("amax has at least one largest magnitude")
    one = torch.ones((), dtype=torch.float32, device=amax.device)
    if cast.rule == "none":
        return Scales(torch.ones_like(amax), torch.ones_like(amax), one)
    poison = amax - amax  # 0, but NaN where amax is infinite or NaN
    if cast.rule in _POWERS_OF_TWO:
        scale = _POWERS_OF_TWO[cast.rule](amax, cast.element).clamp(min=_SMALLEST_POWER) + poison
        return Scales(scale.reciprocal(), scale, one)
    if cast.scale == FORMATS["fp32"]:
        multiplier = torch.where(amax == 0, 1.0, _largest_multiplier(amax, cast.element)) + poison
        return Scales(multiplier, multiplier.reciprocal(), one)
    tensor_scale = one
    if cast.has_tensor_scale:  # which takes the largest block scale to the largest value of its format
        largest = amax.amax()
        exact = largest / (cast.element.max * cast.scale.max)
        tensor_scale = torch.where(largest == 0, 1.0, exact.clamp(min=_FP32.tiny))
    scale = (amax / cast.element.max / tensor_scale).clamp(max=cast.scale.max)
    scale = cast.scale.quantize_by_rounding(scale) + poison
    # A scale that underflowed to zero leaves nothing to divide by: the elements of its block are lost
    multiplier = torch.where(scale == 0, 0.0, (1 / tensor_scale / scale).clamp(max=_FP32.max))
    return Scales(multiplier, scale, tensor_scale)


def _largest_multiplier(amax: Tensor, element: FloatFormat) -> Tensor:
    """Return max / amax, or the largest float32 where amax is so small that this lies beyond."""
    # A number over a tensor is the number times the tensor's reciprocal: that would round twice
    return torch.full_like(amax, element.max).div_(amax).clamp_(max=_FP32.max)


def _up(amax: Tensor, element: FloatFormat) -> Tensor:
    # Cutting the multiplier rounds its inverse up, and is exact: max / amax is never within half a unit of a
    # power of two without being one
    return 1 / rounding.power_of_two_below(_largest_multiplier(amax, element))


def _floor(amax: Tensor, element: FloatFormat) -> Tensor:
    return rounding.power_of_two_below(_from_largest_power(amax, element))


def _even(amax: Tensor, element: FloatFormat) -> Tensor:
    half_a_unit = 1 << (FORMATS["fp32"].mantissa_bits - element.mantissa_bits - 1)
    bits = _from_largest_power(amax, element).view(torch.int32)
    return rounding.power_of_two_below((bits + half_a_unit).view(torch.float32))


def _nearest(amax: Tensor, element: FloatFormat) -> Tensor:
    exact = amax / element.max
    below = rounding.power_of_two_below(exact)
    return torch.where(exact < below * 2**0.5, below, 2 * below)  # √2: the middle, on a logarithmic scale


def _from_largest_power(amax: Tensor, element: FloatFormat) -> Tensor:
    """Return amax in units of the element format's largest power of two."""
    return amax * 2.0 ** -element.power(element.max_code)


_POWERS_OF_TWO: dict[str, Callable[[Tensor, FloatFormat], Tensor]] = {
    "up": _up,
    "floor": _floor,
    "even": _even,
    "nearest": _nearest,
}


# --- delayed scaling: the scale comes from the largest magnitudes of the steps before.
#
# So a tensor is read once instead of twice, for its scale is known before it is. The price is a state,
# which belongs into a checkpoint, and a scale that may be stale.


class AmaxHistory(nn.Module):
    """The largest magnitudes of one layer's input, weight and gradient, for the last ``length`` steps.

    As in Transformer Engine: the scale comes from the largest of them, is 1 as long as there is none, and
    stays as it was where that is infinite or NaN. Buffers hold all of it; evaluation mode leaves it alone.
    """

    amax: Tensor
    in_force: Tensor

    def __init__(self, length: int = 1024) -> None:
        """Begin with nothing remembered. Raises TypeError or ValueError for a length below 1."""
        super().__init__()
        kept = require_whole(length, "length")
        self.register_buffer("amax", torch.zeros(len(ROLES), kept, dtype=torch.float32))
        self.register_buffer("in_force", torch.zeros(len(ROLES), dtype=torch.float32))

    def amax_for(self, role: Role, element: FloatFormat) -> Tensor:
        """Return the largest magnitude that the scale of the next cast is made of."""
        in_force = self.in_force[ROLES.index(role)]
        return torch.where(in_force > 0, in_force, element.max)

    def remember(self, role: Role, amax: Tensor) -> None:
        """Put the largest magnitude of a tensor in the place of the oldest one."""
        if not self.training:
            return
        row = ROLES.index(role)
        self.amax[row] = torch.cat([amax.detach().reshape(1).to(self.amax), self.amax[row, :-1]])
        largest = self.amax[row].amax()
        usable = largest.isfinite() & (largest > 0)
        self.in_force[row] = torch.where(usable, largest, self.in_force[row])
