"""Matrix products of float16 tensors on processors that have no instructions for them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.autocast.cast_policy import map_tensors

_ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"
_PRODUCTS = {
    "aten::mm",
    "aten::addmm",
    "aten::bmm",
    "aten::baddbmm",
    "aten::convolution",
    "aten::convolution_backward",
    _ATTENTION,
    f"{_ATTENTION}_backward",
}


class Float16Products(TorchDispatchMode):
    """Compute float16 products in float32 and round the result, as tensor cores do.

    Without float16 instructions a CPU takes some fifty times as long to multiply float16 as float32. Dtypes,
    shapes and what autograd saves stay the same; values are at least as accurate.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func._schema.name not in _PRODUCTS or not _float16(args[0]):
            return func(*args, **kwargs)
        named = {name: map_tensors(_widened, value) for name, value in kwargs.items()}
        result = func(*map_tensors(_widened, args), **named)
        if func._schema.name == _ATTENTION:
            return result[0].half(), *result[1:]  # the second result, a logarithm, is float32 in any case
        return map_tensors(torch.Tensor.half, result)


def _float16(tensor: torch.Tensor) -> bool:
    return tensor.dtype is torch.float16


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if _float16(tensor) else tensor
