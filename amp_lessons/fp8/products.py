"""The device's own products of two scaled tensors, and why it has none: asked by trying a small one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require, require_device
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.fp8.recipes import PRODUCTS, ROW, TENSOR, Accumulation, Block, Cast, require_recipe
from amp_lessons.precisions import HALVES

if TYPE_CHECKING:
    from amp_lessons.fp8.layer import Quantized

ENGINES = ("auto", "emulated", "device")
DTYPES = (torch.float32, *HALVES.values())
_SHARED_SCALES: dict[Block, str] = {TENSOR: "TensorWise", ROW: "RowWise"}
_MULTIPLE = 16  # CUDA's kernels want sides that are multiples of this


@dataclass(frozen=True)
class Engine:
    """The way of a product, and why: fp32 ("emulated"), a kernel ("device"), "none" if nothing is cast."""

    name: Literal["emulated", "device", "none"]
    reason: str


UNCAST = Engine("none", "the recipe leaves this product in the precision of the activations")


def engines(
    recipe: Any = "tensorwise",
    device: Any = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    weight_dtype: torch.dtype = torch.float32,
) -> dict[str, Engine]:
    """Return what ``engine="auto"`` would take for each product of a recipe, and why.

    ``dtype`` is that of activations and their gradients, ``weight_dtype`` that of weights and theirs. The
    device is asked; one that is not there refuses. Raises TypeError or ValueError for anything else.
    """
    recipe, device = require_recipe(recipe), require_device(device, "device")
    results = {**dict.fromkeys(PRODUCTS, dtype), "weight_gradient": weight_dtype}
    return {
        name: choose_engine(product.left, product.right, recipe.accumulation, device, results[name], "auto")
        if product
        else UNCAST
        for name, product in recipe.products.items()
    }


def choose_engine(
    left: Cast, right: Cast, accumulation: Accumulation, device: torch.device, dtype: torch.dtype, engine: str
) -> Engine:
    """Return which engine computes a product and why; ``scaled_product`` says what is raised."""
    require_engine(engine)
    require(accumulation, Accumulation, "accumulation", "an fp8.Accumulation such as fp8.FP32")
    require(dtype, torch.dtype, "dtype", "torch.float32, torch.bfloat16 or torch.float16")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is torch.float32, torch.bfloat16 or torch.float16, not {dtype}")
    if engine == "emulated":
        return Engine("emulated", "asked for")
    refused = _refusal(left, right, device, dtype)
    if accumulation.bits is not None:
        refused = f"kernels move sums to fp32 at intervals of their own, or never, and not so: {accumulation}"
    if refused is None and engine == "auto" and device.type == "cpu":
        refused = "a CPU has no FP8 units: its kernel gives the same numbers and takes longer"
    if refused is None:
        return Engine("device", "asked for" if engine == "device" else f"{device.type} has a kernel for it")
    if engine == "device":
        raise RuntimeError(f"engine='device' cannot be had: {refused}; engine='auto' emulates it")
    return Engine("emulated", refused)


def require_engine(engine: Any) -> str:
    """Return the name of an engine. Raises TypeError or ValueError for anything else."""
    require(engine, str, "engine", f"one of {', '.join(ENGINES)}")
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r:.60}; {did_you_mean(engine[:60], ENGINES)}")
    return engine


def _refusal(left: Cast, right: Cast, device: torch.device, dtype: torch.dtype) -> str | None:
    """Say why no kernel of this device multiplies operands cast like that; None where one does."""
    if left.element.dtype is None or right.element.dtype is None:
        return "PyTorch casts nothing to four bits"
    if left.block not in _SHARED_SCALES or right.block != left.block:
        return (
            f"kernels are used for scales per tensor or row, not {left.granularity} with {right.granularity}"
        )
    return _tried(left.element.dtype, right.element.dtype, left.block, device, dtype)


@lru_cache(maxsize=64)
def _tried(
    left: torch.dtype, right: torch.dtype, block: Block, device: torch.device, dtype: torch.dtype
) -> str | None:
    try:
        a, b = (torch.zeros(_MULTIPLE, _MULTIPLE, device=device).to(each) for each in (left, right))
        scale = torch.ones(1 if block == TENSOR else _MULTIPLE, 1, dtype=torch.float32, device=device)
        scaled_mm(a, b.t(), scale, scale, block, dtype)
    except (RuntimeError, ValueError, AssertionError, AttributeError) as error:
        return f"{device.type} refuses it: {str(error).splitlines()[0]}"
    return None


def multiply(left: Quantized, right: Quantized, dtype: torch.dtype) -> Tensor:
    """Return left · rightᵀ by the device's kernel, where ``choose_engine`` says that there is one."""
    rows, columns = left.values.shape[0], right.values.shape[0]
    (a, scale_a), (b, scale_b) = _laid_out(left), _laid_out(right)
    return scaled_mm(a, b.t(), scale_a, scale_b, left.cast.block, dtype)[:rows, :columns]


def _laid_out(operand: Quantized) -> tuple[Tensor, Tensor]:
    """Return elements in the format's dtype and scales, filled up to sides that kernels take."""
    rows, columns = operand.values.shape
    multiple = 1 if operand.values.device.type == "cpu" else _MULTIPLE
    more_rows, more_columns = -rows % multiple, -columns % multiple
    values = pad(operand.values, (0, more_columns, 0, more_rows)).to(operand.cast.element.dtype)
    scale = operand.scales if operand.cast.block == TENSOR else pad(operand.scales, (0, 0, 0, more_rows))
    return values.contiguous(), scale.contiguous()


def scaled_mm(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, block: Block, dtype: torch.dtype
) -> Tensor:
    """Return a · b, in 8 bits with scales per tensor or row, by the function that this PyTorch has."""
    scale_a, scale_b = (
        (scale_a.reshape(()), scale_b.reshape(())) if block == TENSOR else (scale_a, scale_b.t())
    )
    if not hasattr(F, "scaled_mm"):  # an older PyTorch
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=dtype)
    kind: Any = getattr(F.ScalingType, _SHARED_SCALES[block])
    return F.scaled_mm(a, b, scale_a, kind, scale_b, kind, output_dtype=dtype)
