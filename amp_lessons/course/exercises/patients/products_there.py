"""In which dtypes the matrix products of somebody's code really ran, whatever cast their inputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "linear", "mkldnn_linear")
_ATTENTION = "scaled_dot_product"


class ProductDtypes(TorchDispatchMode):
    """Notice the dtype of every matrix product below autocast and autograd, backward passes included."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        if name in _PRODUCTS or name.startswith(_ATTENTION):
            factors = args[:3]  # of attention: behind them stand sums that its kernels keep in fp32
            self.seen |= {each.dtype for each in factors if isinstance(each, Tensor)}
        return func(*args, **(kwargs or {}))
