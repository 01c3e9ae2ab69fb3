"""The least time that a training step's operations can take on a GPU, by the roofs of its data sheet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from amp_lessons._base.arguments import require
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
    moved_bytes = sum(work.nbytes for work in recording.work)
    return Bound(
        sheet.name,
        precision_name,
        seconds * 1e3,
        product_seconds * 1e3,
        product_flops,
        moved_bytes,
        len(recording.work),
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
    document. Data sheets like to print the rates for sparse matrices, which are twice as high.
    ``memory_bytes`` is not the data sheet's round number
    but what PyTorch says such a device has, ``torch.cuda.get_device_properties(0).total_memory``.
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


_VOLTA = (
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_TURING = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
_AMPERE = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_GA102 = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_HOPPER = "https://resources.nvidia.com/en-us-tensor-core"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_BLACKWELL = "https://resources.nvidia.com/en-us-blackwell-architecture"
_CDNA3 = "https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html"
_CDNA4 = "https://www.amd.com/en/products/accelerators/instinct/mi350/mi350x.html"
_AMPERE_RATES = {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}
_ADA_RATES = {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8_e4m3": 330.3, "int8": 660.6}
_HOPPER_RATES = {
    "fp32": 66.9,
    "tf32": 494.7,
    "fp16": 989.4,
    "bf16": 989.4,
    "fp8_e4m3": 1978.9,
    "int8": 1978.9,
}
_BLACKWELL_RATES = {
    "fp32": 80,
    "tf32": 1100,
    "fp16": 2250,
    "bf16": 2250,
    "fp8_e4m3": 4500,
    "fp4_e2m1": 9000,
    "int8": 4500,
}
_CDNA3_RATES = {
    "fp32": 163.4,
    "tf32": 653.7,
    "fp16": 1307.4,
    "bf16": 1307.4,
    "fp8_e4m3": 2614.9,
    "int8": 2614.9,
}
# CDNA 4 has no TF32; its FP4 are MX blocks.
_CDNA4_RATES = {
    "fp32": 144.2,
    "fp16": 2306.9,
    "bf16": 2306.9,
    "fp8_e4m3": 4613.7,
    "fp4_e2m1": 9227.5,
    "int8": 4613.7,
}


def _sheet(
    name: str, memory_gib: float, gb_per_s: float, source: str, *, int8: float = 0.0, **tflop_per_s: float
) -> DataSheet:
    rates = {precision: rate * 1e12 for precision, rate in tflop_per_s.items()}
    return DataSheet(name, round(memory_gib * 2**30), gb_per_s * 1e9, rates, source, int8 * 1e12)


# The memory in GiB is the "total capacity" in PyTorch's out-of-memory errors on such devices, as people have
# reported them: data sheets print round numbers, and driver and error correction keep some of it. Of several
# that were found the smallest is taken; it varies by some 0.2 GiB with the driver and its settings.
#   T4 https://github.com/Zheng-Chong/CatVTON/issues/133
#   V100 https://github.com/kchengiva/Shift-GCN/issues/34, https://github.com/haotian-liu/LLaVA/issues/812
#   RTX 3090 https://github.com/GaoLii/DSP/issues/10
#   A100 https://github.com/TianheWu/CoSeR/issues/10, https://github.com/HiDream-ai/VAREdit/issues/6
#   L4 https://github.com/ArcInstitute/evo2/issues/190
#   RTX 4090 https://github.com/ali-vilab/VGen/issues/104
#   H100 https://github.com/vllm-project/vllm/issues/27508
#   H200 139.80, B200 178.35, MI300X 191.98 and MI350X 287.98 stand in several public logs of such machines
#   (the last one of its sibling, MI355X); no thread to cite was found
GPUS: dict[str, DataSheet] = {
    sheet.name: sheet
    for sheet in (
        _sheet("T4", 14.56, 320, _TURING, fp32=8.1, fp16=65, int8=130),
        _sheet("V100 SXM2 16 GB", 15.78, 900, _VOLTA, fp32=15.7, fp16=125),
        _sheet("V100 SXM2 32 GB", 31.74, 900, _VOLTA, fp32=15.7, fp16=125),
        _sheet("RTX 3090", 23.70, 936, _GA102, fp32=35.6, tf32=35.6, fp16=71, bf16=71, int8=284),
        _sheet("A100 SXM 40 GB", 39.50, 1555, _AMPERE, **_AMPERE_RATES),
        _sheet("A100 SXM 80 GB", 79.25, 2039, _AMPERE, **_AMPERE_RATES),
        _sheet("L4", 22.03, 300, _L4, fp32=30.3, tf32=60, fp16=121, bf16=121, fp8_e4m3=242.5, int8=242.5),
        _sheet("RTX 4090", 23.64, 1008, _ADA, **_ADA_RATES),
        _sheet("H100 SXM", 79.11, 3350, _HOPPER, **_HOPPER_RATES),
        _sheet("H200 SXM", 139.80, 4800, _H200, **_HOPPER_RATES),
        _sheet("B200 SXM", 178.35, 8000, _BLACKWELL, **_BLACKWELL_RATES),
        _sheet("MI300X", 191.98, 5300, _CDNA3, **_CDNA3_RATES),
        _sheet("MI350X", 287.98, 8000, _CDNA4, **_CDNA4_RATES),
    )
}
