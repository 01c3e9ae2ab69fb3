"""What is wrong with the dtypes in which the matrix products of somebody's code ran."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from amp_lessons.audit.findings import Finding
from amp_lessons.audit.rules.dtypes import products_in_another_dtype
from amp_lessons.formats.dtypes import dtype_name


def products_elsewhere(seen: Iterable[torch.dtype], asked: torch.dtype, what: str) -> Finding | None:
    """Report products in another dtype than ``asked``; ``what`` says whose they were, in the plural."""
    others = set(seen) - {asked}
    if asked in seen and not others:
        return None
    return products_in_another_dtype(
        what, dtype_name(min(others, key=str)) if others else None, dtype_name(asked)
    )
