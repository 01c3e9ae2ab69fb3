"""Where the memory of a training step goes: predicted without running anything, or measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from amp_lessons.autocast.cast_policy.dispatcher import tensors_in
from amp_lessons.autocast.cuda_on_cpu.counted_kernels import cuda_kernels
from amp_lessons.autocast.ledger.recorder import loss_tensors
from amp_lessons.autocast.running.fake_cpu import on_fake_cpu, require_module, without_collecting
from amp_lessons.autocast.running.grad_mode import gradients_on
from amp_lessons.autocast.running.once import Once, prepare
from amp_lessons.measure.footprint import COMPUTED, MEASURED, Footprint, Saved, footprint, saved_rows
from amp_lessons.measure.optimizers import Factory, make_optimizer, optimizer_bytes, state_tensors
from amp_lessons.measure.precision import fp32_products, precision
from amp_lessons.measure.storages import StorageLog

LossFn = Callable[[Any], torch.Tensor]


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
    ``loss_fn`` takes the output; without it the output's own ``loss`` is used, or all its floating tensors.
    Not predicted is what kernels allocate inside themselves, and what a compiler would save. The mode of the
    caller (``torch.no_grad``) makes no difference.
    """
    kind = precision(precision_name)
    fake, (args, kwargs) = on_fake_cpu(model, (inputs, named_inputs))
    once = prepare(fake, args, kwargs, device_type, kind.autocast_dtype)
    needed = optimizer_bytes(optimizer, fake.parameters(), device_type=device_type)
    log = StorageLog()
    log.note_bytes(needed.state, "optimizer state")
    kernels = cuda_kernels() if device_type == "cuda" else nullcontext()
    with without_collecting(), once.without_trace(), kernels, _gradients_kept(once):
        saved = _follow(once, loss_fn, log)
        log.phase = "optimizer"
        log.note_bytes(needed.temporary, "temporary")
        return footprint(log, saved, COMPUTED)


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
    storages by is called workspace. Parameters, buffers, gradients and random numbers are put back
    afterwards; the mode of the caller (``torch.no_grad``) makes no difference.
    """
    kind = precision(precision_name)
    require_module(model)
    device = next(tensors_in([list(model.parameters()), inputs, named_inputs])).device
    once = prepare(model, inputs, named_inputs, device.type, kind.autocast_dtype)
    log = StorageLog()
    with once.without_trace(), _gradients_kept(once), _weights_kept(model), fp32_products(tf32=kind.tf32):
        updates = make_optimizer(optimizer, model.parameters()) if optimizer else None
        allocated_bytes = _allocated_at_peak(once, loss_fn, updates)
        log.note_all(state_tensors(updates, device.type) if updates else [], "optimizer state")
        saved = _follow(once, loss_fn, log)
        log.phase = "optimizer"
        with log:
            _update(updates)
        followed = footprint(log, saved, MEASURED)
    workspace = max(0, allocated_bytes - followed.peak_bytes)
    return replace(followed, at_peak={**followed.at_peak, "workspace": workspace}) if workspace else followed


def _allocated_at_peak(once: Once, loss_fn: LossFn | None, updates: Optimizer | None) -> int:
    """Take a step to make the optimizer's state; return what a second one allocates on a GPU, or 0."""

    def step() -> None:
        _backward(_forward(once, loss_fn))
        _update(updates)
        _drop_gradients(once)

    if once.device.type != "cuda":
        step()
        return 0
    log = StorageLog()
    _note_given(once, log)
    elsewhere = torch.cuda.memory_allocated(once.device) - log.live_bytes
    step()
    torch.cuda.reset_peak_memory_stats(once.device)
    step()
    return torch.cuda.max_memory_allocated(once.device) - elsewhere


def _follow(once: Once, loss_fn: LossFn | None, log: StorageLog) -> tuple[Saved, ...]:
    """Run forward and backward pass under ``log``; return what was saved between them."""
    _note_given(once, log)
    with log:
        log.phase = "forward"
        with log.following(once.model):
            losses = _forward(once, loss_fn)
        saved = saved_rows(log.live)
        log.phase = "backward"
        _backward(losses)
    log.note_all([leaf.grad for leaf in _leaves(once) if leaf.grad is not None], "gradients")
    return saved


def _note_given(once: Once, log: StorageLog) -> None:
    log.note_all(once.model.parameters(), "parameters")
    log.note_all(once.model.buffers(), "buffers")
    log.note_all(tensors_in((once.args, once.kwargs)), "inputs")


def _forward(once: Once, loss_fn: LossFn | None) -> list[torch.Tensor]:
    with once.autocast():
        output = once.forward()
        losses = [loss_fn(output)] if loss_fn else loss_tensors(output)
    losses = [loss for loss in losses if loss.requires_grad]
    if not losses:
        raise ValueError("there is nothing to train: no output depends on a tensor that requires grad")
    return losses


def _backward(losses: list[torch.Tensor]) -> None:
    torch.autograd.backward(losses, [torch.ones_like(loss) for loss in losses])


def _update(optimizer: Optimizer | None) -> None:
    if optimizer is not None:
        optimizer.step()


def _leaves(once: Once) -> list[torch.Tensor]:
    """Return what a backward pass leaves gradients on: the parameters, and inputs that ask for it."""
    return [t for t in (*once.model.parameters(), *tensors_in((once.args, once.kwargs))) if t.is_leaf]


def _drop_gradients(once: Once) -> None:
    for leaf in _leaves(once):
        leaf.grad = None


@contextmanager
def _gradients_kept(once: Once) -> Iterator[None]:
    """Start without gradients, and put back those that were there."""
    before = [(leaf, leaf.grad) for leaf in _leaves(once)]
    _drop_gradients(once)
    try:
        yield
    finally:
        for leaf, gradient in before:
            leaf.grad = gradient


@contextmanager
def _weights_kept(model: nn.Module) -> Iterator[None]:
    """Put back what the parameters held; the copy lies in main memory, where it is in nobody's way."""
    before = [(parameter, parameter.detach().to("cpu", copy=True)) for parameter in model.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, values in before:
                parameter.copy_(values)
