"""Formats that share a scale: one per tensor, or one per block of 16 or 32 elements.

Eight or four bits cannot span the range of a tensor, so a scale moves the values to where the element format
has its codes. What the scale is shared by decides how much one outlier costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require
from amp_lessons.formats import rounding
from amp_lessons.formats.catalogue import FORMATS
from amp_lessons.formats.compare import relative_error
from amp_lessons.formats.floats import FloatFormat, require_format


@dataclass(frozen=True)
class ScaledFormat:
    """Elements of a small format that share scales, along the last dimension of a tensor.

    ``block_size=None`` shares one scale among all elements. ``scale`` is the format each scale is stored in;
    with ``has_tensor_scale`` the whole tensor is scaled by one more float32, so that its block scales fit in
    theirs.

    The scale of a block with largest magnitude ``amax`` follows its format:

    - power-of-two scales (E8M0): 2^(⌊log2 amax⌋ − ⌊log2 max⌋) with ``max`` that of the element format, the
      rule of OCP Microscaling Formats (MX) v1.0, section 6.3
      (https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf). It can leave
      the largest elements beyond ``max``, where they saturate; NVIDIA rounds the scale up instead
      (https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/BlockScaling.html).
    - others: amax / max, rounded to nearest. For NVFP4 this is the recipe of "Pretraining Large Language
      Models with NVFP4" (https://arxiv.org/abs/2509.25149), with the tensor's scale at amax / (6 · 448).

    Elements are rounded to nearest, ties to even, and saturate. Everything that shares a scale with an
    infinity or a NaN becomes NaN.
    """

    name: str
    element: FloatFormat
    scale: FloatFormat
    block_size: int | None
    has_tensor_scale: bool = False

    def quantize(self, x: Tensor) -> Scaled:
        """Return ``x`` (float32, at least one element and one dimension) as elements and scales.

        The last block of a row that ``block_size`` does not divide is a shorter one.
        """
        x = rounding.as_float32(x)
        if not (x.dim() and x.numel()):
            raise ValueError(
                f"Give a tensor with elements along a last dimension, not one of shape {tuple(x.shape)}."
            )
        blocks = self._blocks(x)
        amax = blocks.abs().amax(-1, keepdim=True)
        tensor_scale = self._tensor_scale(amax)
        scales = self._scales(amax / tensor_scale)
        divisor = scales * tensor_scale
        # A scale that underflowed to zero leaves nothing to divide by: its elements are lost
        counts = torch.where(divisor > 0, blocks / divisor, 0.0).clamp_(-self.element.max, self.element.max)
        return Scaled(
            self, self._unblocked(self.element.quantize(counts), x), scales.squeeze(-1), tensor_scale
        )

    def _blocks(self, x: Tensor) -> Tensor:
        if self.block_size is None:
            return x.reshape(1, -1)
        return pad(x, (0, -x.shape[-1] % self.block_size)).unflatten(-1, (-1, self.block_size))

    def _unblocked(self, blocks: Tensor, like: Tensor) -> Tensor:
        row_length = like.numel() if self.block_size is None else like.shape[-1]
        return blocks.flatten(-2)[..., :row_length].reshape(like.shape)

    def _tensor_scale(self, amax: Tensor) -> Tensor:
        one = torch.ones((), dtype=torch.float32, device=amax.device)
        if not self.has_tensor_scale:
            return one
        scale = amax.amax() / (self.element.max * self.scale.max)
        return torch.where(scale == 0, one, scale)

    def _scales(self, amax: Tensor) -> Tensor:
        if self.scale.mantissa_bits == 0:
            largest_power = self.element.power(self.element.max_code)
            return self.scale.quantize(rounding.power_of_two_below(amax) * 2.0**-largest_power)
        return self.scale.quantize(amax / self.element.max)


@dataclass(frozen=True)
class Scaled:
    """A tensor in a ``ScaledFormat``: element values (shape of the tensor) and the scales of its blocks."""

    format: ScaledFormat
    elements: Tensor
    scales: Tensor  # (..., blocks per row); (1,) for one scale per tensor
    tensor_scale: Tensor  # one float32; 1 where the format has none

    def dequantize(self) -> Tensor:
        """Return the float32 tensor that the elements and scales stand for."""
        blocks = self.format._blocks(self.elements)
        return self.format._unblocked(blocks * self.scales.unsqueeze(-1) * self.tensor_scale, self.elements)

    @property
    def bits_per_element(self) -> float:
        """The bits of this tensor per element, all scales included."""
        scale_bits = self.scales.numel() * self.format.scale.bits
        tensor_scale_bits = FORMATS["fp32"].bits * self.format.has_tensor_scale
        return self.format.element.bits + (scale_bits + tensor_scale_bits) / self.elements.numel()


@dataclass(frozen=True)
class ScalingError:
    """The error of a scaled format on one tensor.

    ``relative_error`` is ‖error‖ / ‖x‖, which the largest elements dominate; ``median_relative_error`` is
    that of the typical non-zero element; ``underflow_fraction`` is the part of the non-zero elements that
    became zero. ``lost`` says which those are: a tensor of bool in the shape of ``x``.
    """

    format: ScaledFormat
    relative_error: float
    median_relative_error: float
    underflow_fraction: float
    bits_per_element: float
    lost: Tensor = field(compare=False, repr=False)


def scaling_error(x: Tensor, scaled_format: ScaledFormat) -> ScalingError:
    """Quantise and dequantise ``x`` (float32, not all zeros) and measure the damage."""
    require(scaled_format, ScaledFormat, "scaled_format", 'one such as formats.BLOCK_FORMATS["mxfp8_e4m3"]')
    scaled = scaled_format.quantize(x)
    exact, back = x.double(), scaled.dequantize().double()
    nonzero = exact != 0
    if not nonzero.any():
        raise ValueError("Every element is zero, so there is no error to relate to anything.")
    element_errors = ((back - exact).abs() / exact.abs())[nonzero]
    lost = nonzero & (back == 0)
    return ScalingError(
        scaled_format,
        relative_error(back, exact),
        float(element_errors.median()),
        float(lost[nonzero].double().mean()),
        scaled.bits_per_element,
        lost,
    )


def per_tensor(element: FloatFormat) -> ScaledFormat:
    """Return ``element`` with one float32 scale per tensor, which takes the largest element to ``max``."""
    require_format(element, "element")
    return ScaledFormat(f"{element.name} per tensor", element, FORMATS["fp32"], block_size=None)


BLOCK_FORMATS: dict[str, ScaledFormat] = {
    scaled_format.name: scaled_format
    for scaled_format in (
        ScaledFormat("mxfp8_e4m3", FORMATS["fp8_e4m3"], FORMATS["e8m0"], block_size=32),
        ScaledFormat("mxfp8_e5m2", FORMATS["fp8_e5m2"], FORMATS["e8m0"], block_size=32),
        ScaledFormat("mxfp4", FORMATS["fp4_e2m1"], FORMATS["e8m0"], block_size=32),
        ScaledFormat("nvfp4", FORMATS["fp4_e2m1"], FORMATS["fp8_e4m3"], block_size=16, has_tensor_scale=True),
    )
}
"""The block formats of OCP MX v1.0 with floating-point elements of 8 and 4 bits, and NVIDIA's NVFP4."""
