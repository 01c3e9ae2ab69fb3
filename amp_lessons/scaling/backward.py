"""Real backward passes at a loss scale, compared with the true gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons.autocast.running import AlikeDropout, gradients_on
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.scaling.checks import (
    check_autocast_dtype,
    check_batch,
    check_device_type,
    check_loss,
    check_scale,
    trainable_parameters,
)
from amp_lessons.scaling.fates import FATES, Census

Batch = tuple[Any, Any]
LossFn = Callable[[Any, Any], Tensor]


def gradients(model: nn.Module, batch: Batch, loss_fn: LossFn) -> dict[str, Tensor]:
    """Return the true gradients of a batch: fp32 throughout, autocast off, loss scale 1.

    The result maps each layer that owns trainable parameters, in order, to a flat fp32 tensor of their
    gradients; of a sparse one, as of ``nn.Embedding(sparse=True)``, those of the rows that were looked up.
    ``batch`` is (inputs, targets) and the loss is ``loss_fn(model(inputs), targets)``. Nothing of the pass is
    left behind. Raises as ``backward_at`` does.
    """
    return gradients_by_layer(model, batch, loss_fn, scale=1.0, dtype=torch.float32, device_type=None)


def backward_at(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    scale: float,
    dtype: torch.dtype = torch.float16,
    device_type: str | torch.device | None = None,
) -> Census:
    """Run a real backward pass of loss × scale under autocast, and count what became of every true gradient.

    Each element of each parameter's gradient is compared with the gradient of a second pass over the same
    batch that is fp32 throughout. Its binade, and whether it was zero or non-finite to begin with, are those
    of this true gradient; its fate is what the scaled pass made of it (a finite one that came out as inf or
    NaN has overflowed). Both passes draw the same random numbers, so dropout drops the same values;
    attention, whose kernels draw by themselves, drops none.

    ``dtype`` is fp16, bf16, or fp32 for no autocast; ``device_type`` is the model's unless given. Gradients,
    buffers, random state, autocast state and mode of the model are as before, also after an error.

    Raises TypeError for a model, batch, loss or scale of the wrong type; ValueError for a scale that is not
    positive and finite in fp32, another dtype, an empty batch, a loss that is not one number, a model in
    ``nn.DataParallel``, one with a reentrant checkpoint, with no parameter that requires a gradient or with
    parameters that are not fp32; RuntimeError for "cuda" without a GPU.
    """
    return reduce(add, backward_by_layer(model, batch, loss_fn, scale, dtype, device_type).values())


def backward_by_layer(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    scale: float,
    dtype: torch.dtype = torch.float16,
    device_type: str | torch.device | None = None,
) -> dict[str, Census]:
    """Do as ``backward_at``, and return one census per layer that owns trainable parameters, in order."""
    true = gradients(model, batch, loss_fn)
    scale, dtype = check_scale(scale), check_autocast_dtype(dtype)
    scaled = gradients_by_layer(model, batch, loss_fn, scale, dtype, device_type)
    return compare_by_layer(true, scaled, scale, dtype)


def compare_by_layer(
    true: dict[str, Tensor], scaled: dict[str, Tensor], scale: float, dtype: torch.dtype
) -> dict[str, Census]:
    """Count, by layer, what a pass at ``scale`` under autocast to ``dtype`` made of the true gradients."""
    return {layer: _compare(true[layer], scaled[layer], scale, dtype) for layer in true}


def layer_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the layers that own trainable parameters, in order.

    Raises TypeError or ValueError for a model that cannot be trained.
    """
    return tuple(dict.fromkeys(_layer_of(name, model) for name in _parameters(model)))


def _parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that receive gradients. Raises as ``backward_at`` does for a model."""
    if isinstance(model, nn.DataParallel):
        raise ValueError(
            "the model is an nn.DataParallel, which cannot be called on copies of its buffers; "
            "give the model inside it, model.module"
        )
    return trainable_parameters(model)


def _layer_of(parameter_name: str, model: nn.Module) -> str:
    return parameter_name.rpartition(".")[0] or type(model).__name__


def _compare(true: Tensor, scaled: Tensor, scale: float, dtype: torch.dtype) -> Census:
    finite = torch.isfinite(true)
    at_stake = finite & (true != 0)
    survivor = scaled[at_stake]
    fate = (
        (survivor != 0).long()
        + ~(survivor.abs() < torch.finfo(dtype).smallest_normal)  # negated, to be true of NaN
        + ~torch.isfinite(survivor)
    )
    binade = torch.frexp(true[at_stake]).exponent - 1
    fates = {name: _histogram(binade[fate == k]) for k, name in enumerate(FATES)}
    norms = _norm(true[finite]), _norm(true[at_stake][survivor == 0])
    return Census(dtype_name(dtype), scale, int((true == 0).sum()), int((~finite).sum()), fates, *norms)


def _norm(values: Tensor) -> float:
    return float(torch.linalg.vector_norm(values, dtype=torch.float64))


def _histogram(binades: Tensor) -> dict[int, int]:
    values, counts = binades.unique(return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def gradients_by_layer(
    model: nn.Module,
    batch: Batch,
    loss_fn: LossFn,
    scale: float,
    dtype: torch.dtype,
    device_type: str | torch.device | None,
) -> dict[str, Tensor]:
    """Return the gradients of loss × ``scale``, still scaled, by layer. Nothing is left behind."""
    parameters = _parameters(model)
    device_type = check_device_type(model, device_type)
    inputs, targets = check_batch(batch)
    with _nothing_left_behind(next(iter(parameters.values())).device):
        with torch.autocast(
            device_type, None if dtype == torch.float32 else dtype, enabled=dtype != torch.float32
        ):
            loss = check_loss(loss_fn(_forward(model, inputs), _copy(targets)))
        # Multiplied by a tensor, as GradScaler does: an fp16 loss is promoted to fp32 by it.
        scaled_loss = loss * torch.tensor(scale, dtype=torch.float32, device=loss.device)
        found = _gradients(scaled_loss, list(parameters.values()))
    by_layer: dict[str, list[Tensor]] = {}
    for name, gradient in zip(parameters, found, strict=True):
        by_layer.setdefault(_layer_of(name, model), []).append(stored_values(gradient).reshape(-1))
    return {layer: torch.cat(parts) for layer, parts in by_layer.items()}


def _gradients(loss: Tensor, parameters: list[nn.Parameter]) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(loss, parameters, materialize_grads=True)
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        raise ValueError(
            "the model checkpoints activations with use_reentrant=True, which leaves gradients on parameters "
            "and cannot hand them out; use torch.utils.checkpoint.checkpoint(..., use_reentrant=False)"
        ) from error


def stored_values(tensor: Tensor) -> Tensor:
    """Return a dense tensor as it is; of a sparse one the rows that it holds, with their parts added up."""
    return tensor.coalesce().values() if tensor.is_sparse else tensor


def _forward(model: nn.Module, inputs: Any) -> Any:
    """Call the model on copies of its buffers and inputs: a batch norm changes its statistics in place."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    return torch.func.functional_call(model, buffers, (_copy(inputs),))


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


@contextmanager
def _nothing_left_behind(device: torch.device) -> Iterator[None]:
    """Compute gradients whatever mode the caller is in, and restore the random state."""
    on_cpu = device.type == "cpu"
    with (
        torch.random.fork_rng([] if on_cpu else [device], device_type="cuda" if on_cpu else device.type),
        gradients_on(),
        AlikeDropout(),
        torch.autocast(device.type, enabled=False),
    ):
        # Inside the caller's own autocast, weights cast to another dtype would be taken from its cache.
        torch.clear_autocast_cache()
        try:
            yield
        finally:
            torch.clear_autocast_cache()
