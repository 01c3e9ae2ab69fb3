"""The device's own scaled matrix products, and why one cannot be used: asked by trying a small one."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons.fp8.recipes import ROW, TENSOR, Block, Cast

if TYPE_CHECKING:
    from amp_lessons.fp8.quantized import Quantized

_SHARED_SCALES: dict[Block, str] = {TENSOR: "TensorWise", ROW: "RowWise"}
_MULTIPLE = 16  # CUDA's kernels want sides that are multiples of this


def refusal(left: Cast, right: Cast, device: torch.device, dtype: torch.dtype) -> str | None:
    """Say why no kernel of this device multiplies operands cast like that; None where one does."""
    if left.element.dtype is None or right.element.dtype is None:
        return "PyTorch casts nothing to four bits"
    if left.block not in _SHARED_SCALES or right.block != left.block:
        return (
            f"kernels are used for scales per tensor or row, not {left.granularity} with {right.granularity}"
        )
    return _tried(left.element.dtype, right.element.dtype, left.block, device, dtype)


def multiply(left: Quantized, right: Quantized, dtype: torch.dtype) -> Tensor:
    """Return left · rightᵀ by the device's kernel; ``refusal`` says where there is one."""
    rows, columns = left.values.shape[0], right.values.shape[0]
    (a, scale_a), (b, scale_b) = _laid_out(left), _laid_out(right)
    return scaled_mm(a, b.t(), scale_a, scale_b, left.cast.block, dtype)[:rows, :columns]


def _laid_out(operand: Quantized) -> tuple[Tensor, Tensor]:
    """Return elements in the format's dtype and scales, filled up to sides that kernels take."""
    rows, columns = operand.values.shape
    multiple = 1 if operand.values.device.type == "cpu" else _MULTIPLE
    more_rows, more_columns = -rows % multiple, -columns % multiple
    values = pad(operand.values, (0, more_columns, 0, more_rows)).to(operand.cast.element.dtype)
    scale = operand.scales if operand.cast.block == TENSOR else pad(operand.scales, (0, 0, 0, more_rows))
    return values.contiguous(), scale.contiguous()


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, block: Block, dtype: torch.dtype
) -> Tensor:
    """Return a · b, in 8 bits with scales per tensor or row, by the function that this PyTorch has."""
    if not hasattr(F, "scaled_mm"):  # an older PyTorch
        if block == TENSOR:
            return torch._scaled_mm(a, b, scale_a.reshape(()), scale_b.reshape(()), out_dtype=dtype)
        return torch._scaled_mm(a, b, scale_a, scale_b.t(), out_dtype=dtype)
    kind: Any = getattr(F.ScalingType, _SHARED_SCALES[block])
    if block == TENSOR:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    else:
        scale_b = scale_b.t()
    return F.scaled_mm(a, b, scale_a, kind, scale_b, kind, output_dtype=dtype)


@lru_cache(maxsize=64)
def _tried(
    left: torch.dtype, right: torch.dtype, block: Block, device: torch.device, dtype: torch.dtype
) -> str | None:
    try:
        a, b = (torch.zeros(_MULTIPLE, _MULTIPLE, device=device).to(each) for each in (left, right))
        scale = torch.ones(1 if block == TENSOR else _MULTIPLE, 1, device=device)
        scaled_mm(a, b.t(), scale, scale, block, dtype)
    except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
        return f"{device.type} refuses it: {str(error).splitlines()[0]}"
    return None
