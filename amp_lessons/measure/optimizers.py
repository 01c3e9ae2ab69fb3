"""What an optimizer keeps and what it needs in passing, asked of the optimizer itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.optim import Optimizer

from amp_lessons.arguments import require_callable, require_items
from amp_lessons.autocast.cast_policy import tensors_in
from amp_lessons.autocast.running import fake_tensors
from amp_lessons.measure.storages import StorageLog

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
    """Refuse what cannot make an optimizer. Raises ``TypeError`` for it."""
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
    held = log.live_bytes_by_kind()
    peak = max(moment.total_bytes for moment in log.moments())
    return OptimizerBytes(state=held["optimizer state"], temporary=peak - log.live_bytes)


def make_optimizer(factory: Factory, parameters: Iterable[torch.Tensor]) -> Optimizer:
    """Call the factory. Raises ``TypeError`` where it does not return an optimizer."""
    instance = factory(parameters)
    if not isinstance(instance, Optimizer):
        raise TypeError(f"a torch.optim.Optimizer was expected of {factory!r}; it made {instance!r:.60}")
    return instance


def state_tensors(optimizer: Optimizer, *device_types: str) -> list[torch.Tensor]:
    """Return the tensors of the optimizer's state that live on one of these devices."""
    tensors = tensors_in(list(optimizer.state.values()))
    return [tensor for tensor in tensors if tensor.device.type in device_types]


def _update_together(optimizer: Optimizer) -> None:
    """Choose what PyTorch chooses by default where parameters are on a GPU."""
    group: dict[str, Any]
    for group in optimizer.param_groups:
        if group.get("foreach", True) is None and not group.get("fused"):
            group["foreach"] = True
