"""Number formats as a recording names them: how coarsely a call rounds, and by how much that changes it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

TF32 = "tf32"  # no dtype: products of fp32 whose operands are rounded to 11 bits
_TF32_ROUNDOFF = 2.0**-11

# Of PyTorch's own layers those whose products autocast, or TF32, may round inside.
_MULTIPLIES = (
    nn.modules.linear.Linear,
    nn.modules.linear.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
)


@cache
def unit_roundoff(number_format: str) -> float:
    """Return the largest relative error of rounding to a format, half of its ``eps``; 0 for whole numbers."""
    if number_format == TF32:
        return _TF32_ROUNDOFF
    dtype = getattr(torch, number_format, None)
    if not isinstance(dtype, torch.dtype) or not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return torch.finfo(dtype).eps / 2


def coarsest(formats: Iterable[str]) -> str:
    """Return the format that rounds most, "" of none."""
    return max(formats, key=unit_roundoff, default="")


def name_of(dtype: torch.dtype) -> str:
    """Name a dtype without PyTorch's own name: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")


def format_of(module: nn.Module, outputs: Iterable[Tensor]) -> str:
    """Return the coarsest format that a call of ``module`` rounds to, here and now.

    That is what it returns; where it may multiply matrices inside, also what autocast or TF32 make of them. A
    layer of PyTorch's own that does not multiply computes as it says.
    """
    outputs = [each for each in outputs if each.is_floating_point()]
    formats = [name_of(each.dtype) for each in outputs]
    pytorchs_own = type(module).__module__.startswith("torch.nn.modules.") and not module._modules
    if outputs and (isinstance(module, _MULTIPLIES) or not pytorchs_own):
        formats += _lowered(module, outputs[0])
    return coarsest(formats)


def _lowered(module: nn.Module, output: Tensor) -> list[str]:
    """Return what products are rounded to at present, beside the dtype in which they are returned."""
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return [name_of(torch.get_autocast_dtype(device))]
    if device != "cuda" or output.dtype != torch.float32:
        return []
    backends: Any = torch.backends
    convolves = isinstance(module, nn.modules.conv._ConvNd)
    setting = backends.cudnn.conv if convolves else backends.cuda.matmul
    return [TF32] if setting.fp32_precision == "tf32" else []
