"""The memory of a training step: predicted without running anything, or measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from amp_lessons._base.arguments import require_callable, require_items
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import (
    PreparedRun,
    counting_saved,
    fake_tensors,
    gradients_on,
    prepare,
    require_module,
    values_kept,
)
from amp_lessons.devices import fp32_products
from amp_lessons.measure.footprint import (
    COMPUTED,
    MEASURED,
    Event,
    Footprint,
    Storage,
    StorageLog,
    footprint,
    moments_of,
)
from amp_lessons.measure.recording import (
    LossFn,
    StepRecording,
    backward,
    drop_gradients,
    follow_step,
    forward,
    gradients_kept,
    note_given,
    record_step,
)
from amp_lessons.precisions import precision

_RECURRENT = "Beware of the recurrent layer: "
_UNPREDICTED = "its kernel works in memory that no prediction sees, and the peak can be several times this."
_UNMEASURED = "its kernel takes more memory than PyTorch shows, and the peak is higher."
_GPUS_OWN = "a GPU has kernels of its own for it that are not predicted, and the peak can be far from this."


@gradients_on()
def predict_memory(
    model: nn.Module,
    *inputs: Any,
    precision_name: str = "fp32",
    optimizer: Factory | None = torch.optim.AdamW,
    loss_fn: LossFn | None = None,
    device_type: str = "cuda",
    **named_inputs: Any,
) -> Footprint:
    """Predict the memory of a training step of ``model(*inputs, **named_inputs)`` without running it.

    Model and inputs may be real, on any device, or fake (``autocast.fake_tensors``); they are left as they
    are. The step follows the autocast rules of ``device_type`` and, for ``"cuda"``, its choice of kernels.
    ``loss_fn`` takes the output, and brings the targets along; without it the output's own ``loss`` is used,
    or all its floating tensors. The mode of the caller (``torch.no_grad``) makes no difference.

    Not predicted is what kernels allocate inside themselves, and what a compiler would save. By the events of
    the CPU's allocator (torch 2.13) that is nothing for most models in fp32, T5 and GPT-2 among them, 2 % for
    ResNet-50 and 4 to 22 % for small conv nets, and up to 11 % for a transformer block under bf16 autocast.
    An LSTM takes two to five times what is predicted; the result's ``warning`` says so.
    """
    precision(precision_name)
    check_functions(optimizer, loss_fn)
    recording = record_step(
        model, inputs, named_inputs, precision_name=precision_name, loss_fn=loss_fn, device_type=device_type
    )
    return footprint_of(recording, optimizer)


@gradients_on()
def footprint_of(
    recording: StepRecording, optimizer: Factory | None, *, device_type: str | None = None
) -> Footprint:
    """Read the memory of a training step with ``optimizer`` off a recording, on the device that it is of.

    Another ``device_type`` may be given where the recording saw no kernels of a GPU.
    """
    device_type = device_type or recording.device_type
    needed = optimizer_bytes(optimizer, recording.model.parameters(), device_type=device_type)
    warning = f"{_RECURRENT}{_UNPREDICTED}" if recording.saw_recurrent_kernel else ""
    if device_type == "cuda" and any(isinstance(each, nn.RNNBase) for each in recording.model.modules()):
        warning = f"{_RECURRENT}{_GPUS_OWN}"
    events: tuple[Event, ...] = (
        ("", Storage(needed.state, "optimizer state"), 1),
        *recording.events,
        ("optimizer", Storage(needed.temporary), 1),
    )
    return footprint(events, recording.saved, COMPUTED, warning)


@gradients_on()
def measure_memory(
    model: nn.Module,
    *inputs: Any,
    precision_name: str = "fp32",
    optimizer: Factory | None = torch.optim.AdamW,
    loss_fn: LossFn | None = None,
    **named_inputs: Any,
) -> Footprint:
    """Measure the memory of a training step on the device where ``model`` lives, by taking real steps.

    Every storage is followed; on a GPU, the peak is what its allocator reports, and what that exceeds the
    storages by is called workspace. On a CPU that is left out; ``predict_memory`` says how much it can be.
    Parameters, buffers, gradients and random numbers are put back
    afterwards; the mode of the caller (``torch.no_grad``) makes no difference.
    """
    kind = precision(precision_name)
    check_functions(optimizer, loss_fn)
    require_module(model)
    device = next(tensors_in([list(model.parameters()), inputs, named_inputs])).device
    prepared = prepare(model, inputs, named_inputs, device.type, kind.autocast_dtype)
    log = StorageLog()
    with (
        prepared.without_trace(),
        gradients_kept(prepared),
        values_kept(model.parameters()),
        fp32_products(tf32=kind.tf32),
    ):
        updates = make_optimizer(optimizer, model.parameters()) if optimizer else None
        allocated_bytes = _allocated_at_peak(prepared, loss_fn, updates)
        log.note_all(state_tensors(updates, device.type) if updates else [], "optimizer state")
        saved = follow_step(prepared, loss_fn, log)
        log.phase = "optimizer"
        with log:
            if updates:
                updates.step()
        warning = f"{_RECURRENT}{_UNMEASURED}" if log.saw_recurrent_kernel else ""
        followed = footprint(log.events, saved, MEASURED, warning)
    workspace = max(0, allocated_bytes - followed.peak_bytes)
    return replace(followed, at_peak={**followed.at_peak, "workspace": workspace}) if workspace else followed


@gradients_on()
def saved_activation_bytes(
    model: nn.Module,
    *inputs: Any,
    dtype: torch.dtype | None = None,
    device_type: str = "cuda",
    **named_inputs: Any,
) -> dict[torch.dtype, int]:
    """Return what autograd keeps for the backward pass of ``model(*inputs, **named_inputs)``: bytes by dtype.

    Each storage counts once, as long as anything in it is kept; parameters and buffers do not count, but
    16-bit copies of them do. ``dtype`` is autocast's dtype, ``None`` means no autocast; ``device_type`` is
    whose rules apply (CUDA's also on the CPU). Real or fake tensors (``autocast.fake_copy``); the model is
    left as it was. Gradients are switched on for the pass, also under ``torch.no_grad``.

    What is kept depends on the kernels too. On the CPU attention with dropout is not fused and keeps its
    weights, which CUDA's fused attention does not: for bytes that hold on a GPU, set attention dropout to 0.
    """
    prepared = prepare(model, inputs, named_inputs, device_type, dtype)
    with prepared.without_trace(), prepared.autocast(), counting_saved(model) as saved:
        prepared.forward()
        return saved.by_dtype


def check_functions(optimizer: Factory | None, loss_fn: LossFn | None) -> None:
    """Raise ``TypeError`` for what cannot be called, and is not None."""
    check_optimizer(optimizer)
    if loss_fn is not None:
        require_callable(loss_fn, "loss_fn", "a function that takes the output and returns the loss, or None")


def _allocated_at_peak(prepared: PreparedRun, loss_fn: LossFn | None, updates: Optimizer | None) -> int:
    """Take a step to make the optimizer's state; return what a second one allocates on a GPU, or 0."""

    def step() -> None:
        backward(forward(prepared, loss_fn))
        if updates:
            updates.step()
        drop_gradients(prepared)

    if prepared.device.type != "cuda":
        step()
        return 0
    log = StorageLog()
    note_given(prepared, log)
    elsewhere = torch.cuda.memory_allocated(prepared.device) - log.live_bytes
    step()
    torch.cuda.reset_peak_memory_stats(prepared.device)
    step()
    return torch.cuda.max_memory_allocated(prepared.device) - elsewhere


# --- what an optimizer keeps and what it needs in passing, asked of the optimizer itself

Factory = Callable[[Iterable[torch.Tensor]], Optimizer]

# By the names that a learner chooses from
OPTIMIZERS: dict[str, Factory | None] = {
    "AdamW": torch.optim.AdamW,
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
}


@dataclass(frozen=True)
class OptimizerBytes:
    """``state`` is kept from step to step; ``temporary`` is allocated and freed within each step."""

    state: int
    temporary: int


def optimizer_bytes(
    optimizer: Factory | None, parameters: Iterable[torch.Tensor], *, device_type: str = "cuda"
) -> OptimizerBytes:
    """Run two steps of ``optimizer(parameters)`` on copies of the parameters that have no data.

    ``optimizer`` is a class or function that makes one, such as ``torch.optim.AdamW``. For ``"cuda"`` it
    updates all parameters together, as PyTorch does there by default, and so needs its intermediate results
    for all of them at once; and the numbers that it keeps on the CPU, such as AdamW's step counts, do not
    count. Raises ``ValueError`` for an optimizer that looks at values (Adafactor, ASGD) or calls the model
    itself (LBFGS).
    """
    check_optimizer(optimizer)
    tensors = require_items(parameters, torch.Tensor, "parameters", "a tensor, as in model.parameters()")
    kinds = tuple((p.shape, p.stride(), p.dtype) for p in tensors if p.requires_grad)
    if optimizer is None or not kinds:
        return OptimizerBytes(0, 0)
    try:
        return _bytes_of_a_step(optimizer, kinds, device_type)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"this optimizer cannot step on tensors without data: {error}") from error


def check_optimizer(optimizer: Factory | None) -> None:
    """Raise ``TypeError`` unless ``optimizer`` can be called, or is None."""
    if optimizer is not None:
        require_callable(optimizer, "optimizer", "what makes one, such as torch.optim.AdamW, or None")


@lru_cache(maxsize=16)  # a third of a prediction's time, and the same for every batch and precision
def _bytes_of_a_step(factory: Factory, kinds: tuple[Any, ...], device_type: str) -> OptimizerBytes:
    """Return what a step needs on parameters of these shapes, strides and dtypes."""
    try:
        return _bytes_on("meta", factory, kinds, device_type)
    except RuntimeError as error:
        if "fused" not in str(error):
            raise
    with fake_tensors():  # the device "meta" has no fused kernel
        return _bytes_on("cpu", factory, kinds, device_type)


def _bytes_on(place: str, factory: Factory, kinds: tuple[Any, ...], device_type: str) -> OptimizerBytes:
    parameters = [
        torch.empty_strided(shape, stride, dtype=dtype, device=place).requires_grad_()
        for shape, stride, dtype in kinds
    ]
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)
    optimizer = make_optimizer(factory, parameters)
    if device_type == "cuda":
        _update_together(optimizer)
    optimizer.step()
    log = StorageLog()
    log.note_all([*parameters, *(p.grad for p in parameters if p.grad is not None)], "parameters")
    log.note_all(state_tensors(optimizer, place, device_type), "optimizer state")
    with log:
        optimizer.step()
    moments = list(moments_of(log.events))
    peak, last = max(moment.total_bytes for moment in moments), moments[-1]
    return OptimizerBytes(last.live_bytes.get("optimizer state", 0), temporary=peak - last.total_bytes)


def make_optimizer(factory: Factory, parameters: Iterable[torch.Tensor]) -> Optimizer:
    """Call the factory.

    Raises ``TypeError`` where it does not return an optimizer, ``ValueError`` for one of other parameters: a
    step would change them.
    """
    given = list(parameters)
    instance = factory(given)
    if not isinstance(instance, Optimizer):
        raise TypeError(f"a torch.optim.Optimizer was expected of {factory!r}; it made {instance!r:.60}")
    held = (parameter for group in instance.param_groups for parameter in group["params"])
    if not {id(parameter) for parameter in held} <= {id(parameter) for parameter in given}:
        raise ValueError(
            "it holds parameters that it was not given; the function is to use those that it is given, as in "
            "lambda parameters: torch.optim.AdamW(parameters, lr=0.1)"
        )
    return instance


def state_tensors(optimizer: Optimizer, *device_types: str) -> list[torch.Tensor]:
    """Return the tensors of the optimizer's state that live on one of these devices."""
    tensors = tensors_in(list(optimizer.state.values()))
    return [tensor for tensor in tensors if tensor.device.type in device_types]


def _update_together(optimizer: Optimizer) -> None:
    """Set ``foreach`` as PyTorch sets it by default for parameters on a GPU."""
    group: dict[str, Any]
    for group in optimizer.param_groups:
        if group.get("foreach", True) is None and not group.get("fused"):
            group["foreach"] = True
