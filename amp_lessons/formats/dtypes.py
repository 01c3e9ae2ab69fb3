"""One short name for each dtype, wherever a learner reads it."""

from __future__ import annotations

import torch

from amp_lessons.formats.catalogue import FORMATS

_NAMES = {torch.float64: "fp64", **{each.dtype: name for name, each in FORMATS.items() if each.dtype}}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name that the course uses for a dtype: ``torch.float16`` is ``"fp16"``.

    Of a dtype that is no number format here it is PyTorch's own: ``torch.int64`` is ``"int64"``.
    """
    return _NAMES.get(dtype, str(dtype).removeprefix("torch."))
