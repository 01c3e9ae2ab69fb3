"""Requirements on arguments of this package's functions, with errors that say what would be right."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from amp_lessons._base.arguments import require
from amp_lessons.formats import FORMATS
from amp_lessons.precisions import HALVES

AUTOCAST_DTYPES = (*HALVES.values(), torch.float32)


def check_scale(scale: float, name: str = "a loss scale", example: float = 2.0**16) -> float:
    """Return a loss scale, or another factor of a scaler, as a float.

    Raises TypeError for anything but a number, ValueError unless it is positive and finite in fp32, the
    format in which ``torch.amp.GradScaler`` keeps it.
    """
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"{name} is a number such as {example}, not {_shown(scale)} ({type(scale).__name__})")
    smallest, largest = math.ulp(0.0), torch.finfo(torch.float32).max
    if not smallest <= scale <= largest or torch.tensor(float(scale), dtype=torch.float32) == 0:
        raise ValueError(
            f"{name} must be positive and finite in fp32 (at most {largest:.10g}), such as {example}; "
            f"got {_shown(scale)}"
        )
    return float(scale)


def parse_scale(text: str) -> float:
    """Return the loss scale that ``text`` names: "65536", "2^16", "1e3".

    Raises ValueError, in words for a learner, for what is no number, or not positive and finite in fp32.
    """
    from amp_lessons.formats.typed import parse  # only for what somebody types

    value = parse(text, FORMATS["fp32"], examples="65536, 1e4 or 2^16").value
    try:
        return check_scale(float(value))
    except OverflowError:
        return check_scale(math.inf)


def check_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that can hold gradients.

    Raises TypeError unless it is a floating torch dtype, ValueError if it has no zero or no sign
    (float8_e8m0fnu holds scale factors) or if PyTorch cannot cast to it (float4_e2m1fn_x2).
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(
            f"gradients are cast to a floating torch.dtype such as torch.float16, not to {_shown(dtype)}"
        )
    signed = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float32, device="cpu")
    try:
        holds_them = bool((signed.to(dtype).to(torch.float32) == signed).all())
    except (RuntimeError, NotImplementedError) as error:
        raise ValueError(
            f"PyTorch cannot cast to {dtype}; torch.float16 and torch.float8_e5m2 work"
        ) from error
    if not holds_them:
        raise ValueError(
            f"{dtype} cannot hold -1, 0 and 1, so it cannot hold gradients; torch.float8_e5m2 can"
        )
    return dtype


def check_autocast_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that ``torch.autocast`` can run in, or fp32 for autocast switched off.

    Raises ValueError for any other.
    """
    if dtype not in AUTOCAST_DTYPES:
        raise ValueError(
            "autocast runs in torch.float16 or torch.bfloat16 (torch.float32 switches it off), "
            f"not in {_shown(dtype)}; what another format would do to gradients, scaling.census tells"
        )
    return dtype


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters that receive gradients, by name.

    Raises TypeError unless ``model`` is a module; ValueError if no parameter requires a gradient, or one is
    not fp32 (under autocast the parameters stay fp32) or was made under inference_mode.
    """
    from amp_lessons.autocast.running import require_normal_parameters  # a census alone runs no model

    require(model, nn.Module, "the model", "a torch.nn.Module")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(
            "the model has no parameter that requires a gradient, so there is nothing to back-propagate"
        )
    require_normal_parameters(model)
    for name, parameter in parameters.items():
        if parameter.dtype != torch.float32:
            raise ValueError(
                f"{name} is {parameter.dtype}: autocast expects fp32 parameters; call model.float()"
            )
    return parameters


def check_device_type(model: nn.Module, device_type: str | torch.device | None) -> str:
    """Return where the model is, as "cpu" or "cuda"; a torch.device names its type.

    Raises RuntimeError for "cuda" on a machine without a GPU, where PyTorch would only warn and switch itself
    off; ValueError if the model is elsewhere than ``device_type`` says.
    """
    where = next(iter(trainable_parameters(model).values())).device.type
    if device_type is not None:
        require(device_type, (str, torch.device), "device_type", '"cpu", "cuda" or None for the model\'s own')
    if isinstance(device_type, torch.device):
        device_type = device_type.type
    if device_type == "cuda" and not torch.cuda.is_available():
        raise RuntimeError('device_type="cuda" needs a GPU, and torch sees none here; use device_type="cpu"')
    if device_type not in (None, where):
        raise ValueError(
            f'the model is on "{where}", not on "{device_type}"; move it with model.to("{device_type}")'
        )
    return where


def check_batch(batch: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return (inputs, targets).

    Raises TypeError unless ``batch`` is such a pair, ValueError if it is empty.
    """
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise TypeError(f"a batch is a pair (inputs, targets), not {type(batch).__name__}")
    if any(isinstance(part, Tensor) and part.numel() == 0 for part in batch):
        raise ValueError("the batch is empty: a mean over no examples has no gradient")
    return batch[0], batch[1]


def check_loss(loss: Tensor) -> Tensor:
    """Return a loss to back-propagate.

    Raises TypeError unless it is a tensor, ValueError unless it is one number that depends on a parameter.
    """
    if not isinstance(loss, Tensor):
        raise TypeError(f"loss_fn returns a tensor, not {type(loss).__name__}")
    if loss.numel() != 1:
        raise ValueError(f"loss_fn returns one number, but its shape is {tuple(loss.shape)}; take the mean")
    if not loss.requires_grad:
        raise ValueError("the loss does not depend on any parameter that requires a gradient")
    return loss


def _shown(value: object) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}…"
