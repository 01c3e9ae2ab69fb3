"""The four precisions that the course measures, and the one switch that tells fp32 from TF32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from amp_lessons.devices import older_setting


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


def precision(name: str) -> Precision:
    """Return the precision called ``name``; a ValueError lists the names there are."""
    if name not in PRECISIONS:
        raise ValueError(f"unknown precision {name!r}; there are {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


@contextmanager
def fp32_products(*, tf32: bool) -> Iterator[None]:
    """Let fp32 matrix products and convolutions on a GPU round their operands to TF32, or forbid it.

    PyTorch's own default is mixed: convolutions may, matrix products may not. The settings are put back at
    the end. They are made through PyTorch's older switches, because once only a newer one is set, reading an
    older one raises, and torch.compile reads both.
    """
    old_switches = (
        (torch.set_float32_matmul_precision, older_setting(torch.get_float32_matmul_precision)),
        (_allow_tf32_in_cudnn, older_setting(lambda: torch.backends.cudnn.allow_tf32)),
    )
    new_switches = [(holder, holder.fp32_precision) for holder in _fp32_settings()]
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    _allow_tf32_in_cudnn(tf32)
    try:
        yield
    finally:
        for put, value in old_switches:
            if value is not None:
                put(value)
        for holder, value in new_switches:
            holder.fp32_precision = value


def _fp32_settings() -> tuple[Any, ...]:
    backends: Any = torch.backends
    return backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn, backends.mkldnn.matmul


def _allow_tf32_in_cudnn(allowed: bool) -> None:
    torch.backends.cudnn.allow_tf32 = allowed
