"""The least time that a training step's operations can take on a GPU, by the roofs of its data sheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from amp_lessons.arguments import require
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.cuda_on_cpu import cuda_kernels
from amp_lessons.autocast.running import (
    gradients_on,
    loss_tensors,
    on_fake_cpu,
    prepare,
    without_collecting,
)
from amp_lessons.measure.gpus import DataSheet
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


@gradients_on()
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
    fake, (args, kwargs) = on_fake_cpu(model, (inputs, named_inputs))
    prepared = prepare(fake, args, kwargs, "cuda", kind.autocast_dtype)
    work = _Work(sheet, "tf32" if kind.tf32 else "fp32")
    with (
        without_collecting(),
        prepared.without_trace(),
        cuda_kernels(),
        _recurrent_layers_as_products(),
        work,
    ):
        with prepared.autocast():
            losses = [loss for loss in loss_tensors(prepared.forward()) if loss.requires_grad]
        leaves = [parameter for parameter in fake.parameters() if parameter.requires_grad]
        torch.autograd.grad(losses, leaves, [torch.ones_like(loss) for loss in losses], allow_unused=True)
    return work.bound(precision_name)


@contextmanager
def _recurrent_layers_as_products() -> Iterator[None]:
    """Keep an LSTM from the CPU's library, in which it is one operation, whose FLOP nobody counts."""
    library: Any = torch.backends.mkldnn
    before, library.enabled = library.enabled, False
    try:
        yield
    finally:
        library.enabled = before


class _Work(TorchDispatchMode):
    """Adds up what the operations of this context have to do."""

    def __init__(self, sheet: DataSheet, precision_of_fp32: str) -> None:
        super().__init__()
        self._sheet, self._precision_of_fp32 = sheet, precision_of_fp32
        self._flops: Counter[str] = Counter()
        self._seconds = self._product_seconds = 0.0
        self._bytes = self._operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        made = list(tensors_in(result))
        if made and not func.is_view:
            self._add(func, args, kwargs, result, [*tensors_in([args, kwargs]), *made])
        return result

    def bound(self, name: str) -> Bound:
        """Return what has been added up."""
        return Bound(
            self._sheet.name,
            name,
            self._seconds * 1e3,
            self._product_seconds * 1e3,
            dict(self._flops),
            self._bytes,
            self._operations,
        )

    def _add(self, func: Any, args: Any, kwargs: Any, result: Any, tensors: list[torch.Tensor]) -> None:
        distinct = {id(tensor): tensor.numel() * tensor.element_size() for tensor in tensors}
        moved_s = sum(distinct.values()) / self._sheet.bytes_per_s
        count = flop_registry.get(func.overloadpacket)
        flops = float(count(*args, **kwargs, out_val=result)) if count else 0.0
        name = _PRECISION_OF.get(tensors[0].dtype, self._precision_of_fp32)
        product_s = flops / self._rate(name) if flops else 0.0
        self._flops[name] += flops  # type: ignore[assignment]  # a Counter adds up floats as well
        self._bytes += sum(distinct.values())
        self._operations += 1
        self._seconds += max(moved_s, product_s)
        self._product_seconds += product_s if product_s > moved_s else 0.0

    def _rate(self, name: str) -> float:
        if name not in self._sheet.flop_per_s:
            known = ", ".join(self._sheet.flop_per_s)
            raise ValueError(
                f"a product is in {name}, for which {self._sheet.name} has no rate, only for {known}"
            )
        return self._sheet.flop_per_s[name]
