"""One short name for each dtype, wherever a learner reads it. PyTorch is loaded when one is asked for."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name that the course uses for a dtype: ``torch.float16`` is ``"fp16"``.

    Of a dtype that is no number format here it is PyTorch's own: ``torch.int64`` is ``"int64"``.
    """
    return _short_names().get(dtype, str(dtype).removeprefix("torch."))


def dtype_of(name: str) -> torch.dtype:
    """Return the dtype of a short name. Raises ValueError for one that this PyTorch does not have."""
    import torch

    if name not in _dtypes():
        raise ValueError(f"this PyTorch ({torch.__version__}) has no dtype {name!r}")
    return _dtypes()[name]


@cache
def _short_names() -> dict[torch.dtype, str]:
    import torch

    from amp_lessons.formats.catalogue import FORMATS

    return {torch.float64: "fp64", **{each.dtype: name for name, each in FORMATS.items() if each.dtype}}


@cache
def _dtypes() -> dict[str, torch.dtype]:
    import torch

    return {dtype_name(each): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
