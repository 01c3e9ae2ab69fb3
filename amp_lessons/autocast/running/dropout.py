"""Dropout that is the same in every dtype, so that two passes can be compared."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

_DROPOUTS = {
    torch.dropout,
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}


class AlikeDropout(TorchFunctionMode):
    """Let dropout drop the same numbers whatever their dtype, or with ``none`` drop nothing.

    From the same random state a GPU draws other masks in fp16 than in fp32. So all are drawn in fp32. What
    attention drops is decided inside of kernels that differ by dtype: it drops nothing.
    """

    def __init__(self, none: bool = False) -> None:
        super().__init__()
        self._none = none

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            x, *rest = args or (kwargs.pop("input"),)
            return x if self._none else func(x.float(), *rest, **kwargs).to(x.dtype)
        if func is F.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        elif func is F.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)
