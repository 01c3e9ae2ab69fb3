"""One row per operation that a model really ran, and which rule decided on its dtype."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from amp_lessons.arguments import require
from amp_lessons.autocast.ledger.recorder import Recorder
from amp_lessons.autocast.ledger.rows import Ledger
from amp_lessons.autocast.running import as_in_inference_mode, counting_saved, gradients_on, prepare
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES


def record(
    model: nn.Module,
    *inputs: Any,
    device_type: str = "cuda",
    dtype: torch.dtype | None = torch.float16,
    backward: bool | Callable[[Any], torch.Tensor] = False,
    **named_inputs: Any,
) -> Ledger:
    """Run ``model(*inputs, **named_inputs)`` under autocast and write down every operation that it calls.

    ``device_type`` is whose rules apply; CUDA's also on a machine without a GPU (see ``cuda_rules``).
    ``dtype=None`` records a run without autocast. ``backward=True`` records the gradients too, of the
    output's ``loss`` if it has one, else of all its floating tensors; a function is called with the output,
    under autocast, and returns the loss. Gradients, buffers and random numbers are left as they were.

    Under ``torch.no_grad`` or ``torch.inference_mode`` a forward pass is recorded as it runs there: autograd
    keeps nothing, as a note says. ``backward`` switches gradients on.

    Model and inputs may be fake (``fake_tensors``, ``fake_copy``): then nothing is computed and no memory
    needed. On a CPU, real float16 products are computed in float32 and rounded. Raises ``RecordingError`` if
    the model fails, ``TypeError`` or ``ValueError`` if the arguments make no sense.
    """
    if not callable(backward):
        require(backward, bool, "backward", "True, False, or a function that takes the output")
    with _mode(bool(backward)):
        prepared = prepare(model, inputs, named_inputs, device_type, dtype)
        recorder = Recorder(prepared)
        with prepared.without_trace(), counting_saved(model, backward_follows=bool(backward)) as saved:
            targets = recorder.record_forward(backward)
            saved_bytes = saved.by_dtype
            if backward:
                recorder.record_backward(targets)
        return Ledger(tuple(recorder.rows), device_type, dtype, prepared.where, saved_bytes, _notes(model))


def _mode(backward: bool) -> AbstractContextManager[None]:
    if backward:
        return gradients_on()
    return as_in_inference_mode() if torch.is_inference_mode_enabled() else nullcontext()


def _notes(model: nn.Module) -> tuple[str, ...]:
    """Return what a reader should know about the model's own dtypes, and the mode that it ran in."""
    dtypes = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    notes = []
    if not dtypes:
        notes.append("the model has no floating parameters: autocast has no weights to cast")
    trained = {parameter.dtype for parameter in model.parameters() if parameter.requires_grad}
    for half in sorted(dtypes & {*HALVES.values()}, key=str):
        updates = (
            ": nothing keeps them in fp32, updates will be rounded" if half in trained else ", and frozen"
        )
        notes.append(f"parameters are {dtype_name(half)} already{updates}")
    if torch.float64 in dtypes:
        notes.append("parameters are float64: autocast leaves float64 alone")
    if not torch.is_grad_enabled():
        notes.append("recorded under no_grad or inference_mode: nothing is kept for a backward pass there")
    return tuple(notes)
