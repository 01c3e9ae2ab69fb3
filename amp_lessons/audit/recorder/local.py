"""The part of a distributed tensor that lies in this process: looking at it sends nothing to other ranks."""

from __future__ import annotations

import sys
from typing import Any

from torch import Tensor


def is_distributed(tensor: Any) -> bool:
    """Whether a tensor is a ``DTensor``, on which any operation may be a collective of all ranks."""
    module = sys.modules.get("torch.distributed.tensor")  # nobody has one where it was not imported
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a distributed tensor, without its history; any other tensor as it is."""
    return tensor.detach().to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
