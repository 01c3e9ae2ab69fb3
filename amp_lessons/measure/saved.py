"""Time, memory and throughput, measured honestly."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from amp_lessons.autocast.running.grad_mode import gradients_on
from amp_lessons.autocast.running.once import prepare
from amp_lessons.autocast.running.saved import counting_saved


@gradients_on()
def saved_activation_bytes(
    model: nn.Module,
    *inputs: Any,
    dtype: torch.dtype | None = None,
    device_type: str = "cuda",
    **named_inputs: Any,
) -> dict[torch.dtype, int]:
    """Bytes that autograd keeps for the backward pass of ``model(*inputs, **named_inputs)``, by dtype.

    Each storage counts once, as long as anything in it is kept; parameters and buffers do not count, but
    16-bit copies of them do. ``dtype`` is autocast's dtype, ``None`` means no autocast; ``device_type`` is
    whose rules apply (CUDA's also on the CPU). Real or fake tensors (``autocast.fake_copy``); the model is
    left as it was. Gradients are switched on for the pass, also under ``torch.no_grad``.

    What is kept depends on the kernels too. On the CPU attention with dropout is not fused and keeps its
    weights, which CUDA's fused attention does not: for bytes that hold on a GPU, set attention dropout to 0.
    """
    once = prepare(model, inputs, named_inputs, device_type, dtype)
    with once.without_trace(), once.autocast(), counting_saved(model, backward_follows=False) as saved:
        once.forward()
        return saved.by_dtype
