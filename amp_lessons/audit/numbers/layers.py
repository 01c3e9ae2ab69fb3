"""What is in the gradients of one layer, in the format used and in others, and what its dtypes are."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from amp_lessons.audit.recorder.later import local
from amp_lessons.audit.seen import LayerStep
from amp_lessons.scaling import Census, census

# what a cast of the gradients would be to, where training does not use it
FORMATS: Mapping[str, torch.dtype] = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp8_e5m2": torch.float8_e5m2,
    "fp8_e4m3": torch.float8_e4m3fn,
}


def layer_step(
    parameters: Sequence[Tensor], step: int, carried: float, loss_scale: float, used: torch.dtype | None
) -> LayerStep | None:
    """Look at the gradients of one layer, which still carry the scale ``carried``; None without any.

    ``used`` is the dtype of autocast, in which the gradients were computed at ``loss_scale``. At most one
    layer's gradients are copied, and only where they are still scaled.
    """
    gradients = [_unscaled(p.grad, carried) for p in parameters if p.grad is not None]
    if not gradients:
        return None
    censuses = {name: census(gradients, dtype, norms=True) for name, dtype in FORMATS.items()}
    one = next(iter(censuses.values()))
    in_use = used if used in FORMATS.values() and 0 < loss_scale < math.inf else None
    return LayerStep(
        step=step,
        census=None if in_use is None else _in_use(gradients, in_use, loss_scale, censuses),
        counterfactual=censuses,
        norm=one.norm or 0.0,
        zero_fraction=one.zero / one.total if one.total else 0.0,
    )


def _in_use(
    gradients: list[Tensor], dtype: torch.dtype, scale: float, at_one: Mapping[str, Census]
) -> Census:
    if scale == 1.0:
        return next(each for each in at_one.values() if each.dtype == dtype)
    return census(gradients, dtype, scale, norms=True)


def _unscaled(gradient: Tensor, carried: float) -> Tensor:
    gradient = local(gradient).detach()
    gradient = gradient.to_dense() if gradient.layout != torch.strided else gradient
    return gradient if carried == 1.0 else gradient.float() / carried


def dtypes_of(
    parameters: Mapping[str, Tensor], optimizers: Sequence[torch.optim.Optimizer]
) -> Iterator[tuple[str, torch.dtype]]:
    """Yield the dtypes of a layer's parameters by name, of their gradients and of the optimizers' state."""
    for name, parameter in parameters.items():
        yield name, parameter.dtype
        if parameter.grad is not None:
            yield f"{name}.gradient", parameter.grad.dtype
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    yield f"optimizer.{key}", value.dtype
