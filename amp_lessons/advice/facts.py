"""The findings of all instruments of the course on one model."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from amp_lessons import audit, devices
from amp_lessons.advice.subject import Subject
from amp_lessons.audit.explaining import Explanation
from amp_lessons.autocast import Islands, Ledger
from amp_lessons.measure import Bound, DataSheet, Decoding, Footprint, LargestBatch, Timing
from amp_lessons.precisions import precision_name


@dataclass
class Facts:
    """All that was found; what could not be is left out, and ``not_done`` says why, a sentence each.

    ``dtype`` is what autocast uses on the GPU of ``sheet``: bf16 where that has it. ``here`` is what it can
    use where the model lies, None where neither is fast; the audited steps run in ``audited_in``.
    ``memory_here`` is predicted for the CPU that the model lies on, in fp32; ``memory`` for a GPU.
    """

    subject: Subject
    sheet: DataSheet
    dtype: torch.dtype
    here: torch.dtype | None
    ledger: Ledger | None = None
    refused: Explanation | None = None
    islands: dict[torch.dtype, Islands] = field(default_factory=dict)
    memory: dict[str, Footprint] = field(default_factory=dict)
    memory_here: Footprint | None = None
    largest_batch: dict[str, LargestBatch] = field(default_factory=dict)
    bounds: dict[str, Bound] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    decoding: Decoding | None = None
    audit: audit.Report | None = None
    audited_in: torch.dtype | None = None
    not_done: list[str] = field(default_factory=list)

    @property
    def half(self) -> str:
        """The short name of ``dtype``: ``"bf16"``."""
        return precision_name(self.dtype)

    def told(self, name: str) -> str:
        """Say a precision in words; "fp32" stands for no autocast, with the weights as they are."""
        plain = self.subject.plain
        return f"in {name}" if name != "fp32" or plain == "fp32" else f"in {plain} without autocast"

    @property
    def gpu(self) -> str:
        """The GPU's name."""
        return self.sheet.name

    @property
    def memory_in_half(self) -> str:
        """The name of the 16-bit dtype whose memory is known, "" for none; measured on a CPU, it is bf16."""
        return next((name for name in self.memory if name != "fp32"), "")


def autocast_dtype(sheet: DataSheet) -> torch.dtype:
    """Return the dtype to use on a GPU: bf16, which needs no scaler, where its tensor cores have it."""
    return torch.bfloat16 if "bf16" in sheet.flop_per_s else torch.float16


def dtype_here(device: torch.device) -> torch.dtype | None:
    """Return the 16-bit dtype in which products are fast on this device, bf16 first; None for neither."""
    machine = devices.describe()
    if device.type == "cuda" and machine.gpu is not None:
        return torch.bfloat16 if machine.gpu.bf16 == "native" else torch.float16
    support = {torch.bfloat16: machine.cpu.bf16, torch.float16: machine.cpu.fp16}
    return next((dtype for dtype, how in support.items() if how == "native"), None)
