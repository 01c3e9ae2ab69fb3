"""The precisions that the course trains and measures in, and what each means to a tensor and to autocast."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from amp_lessons._base.arguments import require


@dataclass(frozen=True)
class Precision:
    """How a training step, or a lone matrix product, computes.

    ``dtype`` is what tensors of a lone operation hold; ``autocast_dtype`` is what autocast casts to in a
    training step, None for no autocast. TF32 is no dtype: tensors hold fp32, and only products round their
    operands.
    """

    name: str
    dtype: torch.dtype
    autocast_dtype: torch.dtype | None = None
    tf32: bool = False

    @property
    def needs_scaler(self) -> bool:
        """Whether training in this precision needs loss scaling: only fp16 has too small a range."""
        return self.autocast_dtype == torch.float16


PRECISIONS = {
    p.name: p
    for p in (
        Precision("fp32", torch.float32),
        Precision("tf32", torch.float32, tf32=True),
        Precision("fp16", torch.float16, torch.float16),
        Precision("bf16", torch.bfloat16, torch.bfloat16),
    )
}

# The dtypes that autocast can cast to, by name.
HALVES = {p.name: p.autocast_dtype for p in PRECISIONS.values() if p.autocast_dtype is not None}
HALF_DTYPES = frozenset(HALVES.values())


def precision(name: str) -> Precision:
    """Return the precision that a learner named; ``PRECISIONS[name]`` is for names that are known to be one.

    Raises ``ValueError`` for another name, with the names there are, ``TypeError`` for what is no name.
    """
    require(name, str, "a precision's name", 'a text such as "fp16"')
    if name not in PRECISIONS:
        raise ValueError(f"unknown precision {name!r}; there are {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def precision_name(autocast_dtype: torch.dtype | None) -> str:
    """Return the name of the precision in which autocast casts to this dtype; None, no autocast, is fp32.

    Raises ``ValueError`` for a dtype that autocast does not cast to.
    """
    for known in PRECISIONS.values():
        if known.autocast_dtype == autocast_dtype:
            return known.name
    raise ValueError(f"autocast casts to {' or '.join(map(str, HALVES.values()))}, not to {autocast_dtype}")
