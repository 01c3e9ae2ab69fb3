"""PyTorch's casts to eight bits: written down, and the same on every PyTorch.

What is too large for E4M3 becomes its largest number from PyTorch 2.13 on, infinities too, and NaN before. A
check that runs an attempt by both behaviours comes to one verdict, whichever of them is installed. E5M2 has
infinities, and every PyTorch uses them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from amp_lessons.formats import FORMATS, FloatFormat

BEHAVIOURS = {"saturates": "by PyTorch's cast from 2.13 on", "nan": "by PyTorch's cast before 2.13"}
"""What becomes of numbers that are too large for E4M3, and whose cast does that."""

FORMAT_OF = {
    each.dtype: each for each in (FORMATS["fp8_e4m3"], FORMATS["fp8_e5m2"]) if each.dtype is not None
}
"""The formats of eight bits that PyTorch casts to, by dtype."""


class CastWatch(TorchDispatchMode):
    """Let what is too large for eight bits become what ``behaviour`` says.

    ``seen`` has of each cast what was cast, in fp64, and to which dtype.
    """

    def __init__(self, behaviour: str) -> None:
        super().__init__()
        self.behaviour = behaviour
        self.seen: list[tuple[Tensor, torch.dtype]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        source = _source(func, args)
        # A cast of eight bits to the same eight bits is a copy
        if source is None or result.dtype not in FORMAT_OF or source.dtype == result.dtype:
            return result
        before = source.detach().double().clone()
        if result.dtype == torch.float8_e4m3fn:
            _treat_too_large(result, source, self.behaviour)
        self.seen.append((before, result.dtype))
        return result


def too_large_from(number_format: FloatFormat) -> float:
    """Return the middle between the largest number of a format and where the next one would be."""
    return number_format.max + number_format.spacing(number_format.max) / 2


_COPIES = torch.ops.aten.copy_.default
_CASTS = (torch.ops.aten._to_copy.default, torch.ops.aten.to.dtype)


def _source(func: Any, args: Any) -> Tensor | None:
    if func in _CASTS:
        return args[0]
    return args[1] if func is _COPIES and isinstance(args[1], Tensor) else None


_NAN = 0x7F


def _treat_too_large(result: Tensor, source: Tensor, behaviour: str) -> None:
    e4m3 = FORMATS["fp8_e4m3"]
    values = source.detach().double().expand(result.shape)
    code = e4m3.max_code if behaviour == "saturates" else _NAN
    signed = torch.where(values < 0, code | 0x80, code).to(torch.uint8)
    codes = result.view(torch.uint8)  # the memory of the result
    codes.copy_(torch.where(values.abs() > too_large_from(e4m3), signed, codes))
