"""Passes that draw the same random numbers, whatever their dtype, so that they can be compared."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
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


@contextmanager
def same_draws() -> Iterator[None]:
    """Start from the random numbers that the next such block starts from, and drop nothing out.

    What a layer leaves out at random is left out alike; the masks of dropout are not the same in every dtype.
    """
    before = random.getstate(), np.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices), _WithoutDropout():
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


class _WithoutDropout(TorchFunctionMode):
    """Let dropout pass everything on."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DROPOUTS:
            return args[0] if args else kwargs["input"]
        if func is F.scaled_dot_product_attention:
            if len(args) > 4:
                args = (*args[:4], 0.0, *args[5:])
            else:
                kwargs["dropout_p"] = 0.0
        elif func is F.multi_head_attention_forward:
            kwargs["training"] = False
        return func(*args, **kwargs)
