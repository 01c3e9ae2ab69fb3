"""The least time that a training step's operations can take on a GPU, by the roofs of its data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from amp_lessons._base.arguments import require
from amp_lessons._base.entries import read_entries
from amp_lessons.measure.rates import Roof
from amp_lessons.measure.recording import StepRecording, record_step
from amp_lessons.precisions import precision

_PRECISION_OF = {torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Bound:
    """The least milliseconds of a forward and backward pass on ``gpu``, and what they are made of.

    ``product_flops`` counts the FLOP of matrix products and convolutions by the precision of their operands,
    ``moved_bytes`` what all operations read and write. ``product_ms`` is the part of ``ms`` in operations
    that the rate of products bounds; memory bounds the others.
    """

    gpu: str
    precision: str
    ms: float
    product_ms: float
    product_flops: Mapping[str, float]
    moved_bytes: int
    operations: int


def predict_bound(
    model: nn.Module, *inputs: Any, sheet: DataSheet, precision_name: str = "fp32", **named_inputs: Any
) -> Bound:
    """Bound the time of a forward and backward pass of ``model(*inputs, **named_inputs)`` from below.

    Each operation takes as long as ``sheet`` promises for its FLOP or for its bytes, whichever is longer, and
    every one reads and writes memory: none are fused, and launching them costs nothing. Nothing is run: model
    and inputs become fake tensors, under CUDA's autocast rules. Raises ``ValueError`` for a precision that
    the data sheet does not know, also where only the model's own weights are in it.
    """
    require(sheet, DataSheet, "sheet", 'a data sheet such as measure.GPUS["T4"]')
    kind = precision(precision_name)
    if kind.name not in sheet.flop_per_s:
        raise ValueError(f"{sheet.name} has no rate for {kind.name}, only {', '.join(sheet.flop_per_s)}")
    recording = record_step(model, inputs, named_inputs, precision_name=precision_name, products=True)
    return bound_of(recording, sheet, precision_name)


def bound_of(recording: StepRecording, sheet: DataSheet, precision_name: str) -> Bound:
    """Read the bound off a recording, whose products in fp32 run as ``precision_name`` says.

    Raises ``ValueError`` for products in a dtype that the data sheet has no rate for.
    """
    of_fp32 = "tf32" if precision(precision_name).tf32 else "fp32"
    product_flops: dict[str, float] = {}
    seconds = product_seconds = 0.0
    for work in recording.work:
        name = _PRECISION_OF.get(work.dtype, of_fp32)
        if work.flops and name not in sheet.flop_per_s:
            known = ", ".join(sheet.flop_per_s)
            raise ValueError(f"a product is in {name}, for which {sheet.name} has no rate, only for {known}")
        moved_s = work.nbytes / sheet.bytes_per_s
        product_s = work.flops / sheet.flop_per_s[name] if work.flops else 0.0
        product_flops[name] = product_flops.get(name, 0) + work.flops
        seconds += max(moved_s, product_s)
        product_seconds += product_s if product_s > moved_s else 0.0
    return Bound(
        gpu=sheet.name,
        precision=precision_name,
        ms=seconds * 1e3,
        product_ms=product_seconds * 1e3,
        product_flops=product_flops,
        moved_bytes=sum(work.nbytes for work in recording.work),
        operations=len(recording.work),
    )


# --- what data sheets promise of some GPUs, to be read beside what was measured

# What the driver, the CUDA context and the libraries take before the first tensor exists, roughly.
CONTEXT_BYTES = 2**29


@dataclass(frozen=True)
class DataSheet:
    """A GPU as its data sheet describes it.

    ``flop_per_s`` holds the peak rate of dense matrix products by precision, accumulated in fp32; a precision
    without an entry has no tensor cores there. ``int8_per_s`` is that of products of 8-bit integers, 0
    without such tensor cores: quantized inference uses it, no precision of training does. ``source`` is the
    document. ``memory_bytes`` is not its round number but what PyTorch says such a device has,
    ``torch.cuda.get_device_properties(0).total_memory``.
    """

    name: str
    memory_bytes: int
    bytes_per_s: float
    flop_per_s: Mapping[str, float]
    source: str
    int8_per_s: float = 0.0

    @property
    def usable_bytes(self) -> int:
        """Memory that is left for tensors, estimated: what the device has less ``CONTEXT_BYTES``."""
        return self.memory_bytes - CONTEXT_BYTES

    def roof(self, precision: str) -> Roof:
        """Return what the data sheet promises of one precision."""
        return Roof(precision, self.flop_per_s[precision], self.bytes_per_s)

    @property
    def roofs(self) -> list[Roof]:
        """The roofs of all precisions that the data sheet knows."""
        return [self.roof(precision) for precision in self.flop_per_s]

    def ridge_point(self, precision: str) -> float:
        """Return the intensity (FLOP per byte) above which products, not memory, are what bounds."""
        return self.roof(precision).ridge_point

    def attainable_flop_per_s(self, precision: str, intensity: float) -> float:
        """Return the most that the roof allows an operation of this intensity (FLOP per byte)."""
        return self.roof(precision).attainable_flop_per_s(intensity)


@dataclass(frozen=True)
class _Printed:
    name: str
    source: str
    printed: dict[str, float]

    def sheet(self) -> DataSheet:
        """Return it in bytes, bytes per second and operations per second."""
        per_s = {precision: rate * 1e12 for precision, rate in self.printed.items()}
        memory_bytes, bytes_per_s = round(self.printed["GiB"] * 2**30), self.printed["GB/s"] * 1e9
        del per_s["GiB"], per_s["GB/s"]
        int8_per_s = per_s.pop("int8", 0.0)
        return DataSheet(self.name, memory_bytes, bytes_per_s, per_s, self.source, int8_per_s)


GPUS: dict[str, DataSheet] = {
    each.name: each.sheet() for each in read_entries("amp_lessons.measure", ["gpus.yaml"], _Printed)
}
