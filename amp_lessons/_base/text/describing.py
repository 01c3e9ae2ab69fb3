"""A value in a few words, without running code of whoever made it."""

from __future__ import annotations

import reprlib
from typing import Any

import torch


class _Describing(reprlib.Repr):
    """Describe values without running code of the learner's: their ``__repr__`` may raise, or never end."""

    def repr_instance(self, value: Any, level: int) -> str:
        if type(value).__module__ in ("builtins", "torch"):
            return super().repr_instance(value, level)
        return f"<{type(value).__name__}>"


def describe(value: Any) -> str:
    """Describe in a few words what ``value`` is."""
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)} and dtype {value.dtype}"
    text = _Describing().repr(value).replace("\n", " ")
    return f"{type(value).__name__} {text[:57] + '…' if len(text) > 58 else text}"
