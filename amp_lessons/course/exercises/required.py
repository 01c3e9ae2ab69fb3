"""What checks of functions on tensors require of a result before its numbers are looked at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from amp_lessons.course.exercises.attempt import Rejected
from amp_lessons.course.exercises.bed import described
from amp_lessons.course.exercises.report import common_findings


def require_tensor(seen: Any, dtype: torch.dtype, shape: Sequence[int], what: str, hint: str) -> Tensor:
    """Return a tensor of this dtype and shape; reject anything else, ``what`` it came of."""
    if not isinstance(seen, Tensor) or seen.dtype != dtype or seen.shape != torch.Size(shape):
        expected = f"a tensor of dtype {dtype} and shape {tuple(shape)} was"
        raise Rejected(common_findings.wrong_return_type(expected, f"{described(seen)}, {what}", hint))
    return seen
