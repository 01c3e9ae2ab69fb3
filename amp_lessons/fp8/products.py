"""One product of two scaled tensors: emulated anywhere, or by the device's kernel, and which of them ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.functional import pad

from amp_lessons._base.arguments import require, require_device
from amp_lessons._base.text.nearest import did_you_mean
from amp_lessons.fp8.accumulators import FP32, Accumulation, accumulate, few_bits
from amp_lessons.fp8.quantized import Quantized
from amp_lessons.fp8.recipes import PRODUCTS, ROW, TENSOR, Block, Cast, require_recipe
from amp_lessons.precisions import HALVES

ENGINES = ("auto", "emulated", "device")
DTYPES = (torch.float32, *HALVES.values())


@dataclass(frozen=True)
class Engine:
    """The way of a product, and why: fp32 ("emulated"), a kernel ("device"), "none" if nothing is cast."""

    name: Literal["emulated", "device", "none"]
    reason: str


UNCAST = Engine("none", "the recipe leaves this product in the precision of the activations")


@dataclass(frozen=True)
class ScaledProduct:
    """A product of two scaled tensors (rows, columns), and what computed it."""

    values: Tensor
    engine: Engine


def scaled_product(
    left: Quantized,
    right: Quantized,
    *,
    accumulation: Accumulation = FP32,
    dtype: torch.dtype = torch.float32,
    engine: str = "auto",
) -> ScaledProduct:
    """Return ``left`` (rows, inner) times the transpose of ``right`` (columns, inner).

    The emulation takes both operands back to fp32, multiplies there (never in TF32) and rounds to ``dtype``
    once, as a kernel does. Where ``accumulation`` has few bits, what is added up are the elements; scales per
    block come to it in fp32, wherever one ends. ``engine`` "device" wants the device's kernel, "auto" takes
    it where it is the faster one. Raises TypeError or ValueError for anything else, RuntimeError where
    "device" has no such kernel.
    """
    for name, operand in (("left", left), ("right", right)):
        require(operand, Quantized, name, "a tensor that fp8.quantize returned")
    if left.values.dim() != 2 or right.values.dim() != 2 or left.values.shape[1] != right.values.shape[1]:
        shapes = f"{tuple(left.values.shape)} and {tuple(right.values.shape)}"
        raise ValueError(f"left and right are matrices (rows, inner) and (columns, inner), not {shapes}")
    chosen = choose_engine(left.cast, right.cast, accumulation, left.values.device, dtype, engine)
    if chosen.name == "device" and min(*left.values.shape, right.values.shape[0]):
        return ScaledProduct(multiply(left, right, dtype), chosen)
    if accumulation.bits is None:
        return ScaledProduct(accumulate(left.dequantize(), right.dequantize()).to(dtype), chosen)
    return ScaledProduct(_in_few_bits(left, right, accumulation).to(dtype), chosen)


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
    require_dtype(dtype)
    if engine == "emulated":
        return Engine("emulated", "asked for")
    refused = refusal(left, right, device, dtype)
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


def require_dtype(dtype: Any) -> torch.dtype:
    """Return the dtype of a product. Raises TypeError or ValueError for anything else."""
    require(dtype, torch.dtype, "dtype", "torch.float32, torch.bfloat16 or torch.float16")
    if dtype not in DTYPES:
        raise ValueError(f"dtype is torch.float32, torch.bfloat16 or torch.float16, not {dtype}")
    return dtype


def _in_few_bits(left: Quantized, right: Quantized, accumulation: Accumulation) -> Tensor:
    inner = left.values.shape[1]
    ends = (left.cast.block[1], right.cast.block[1], accumulation.promote_every)
    interval = math.gcd(*(each or 0 for each in ends)) or max(inner, 1)
    total = left.values.new_zeros(left.values.shape[0], right.values.shape[0])
    if not total.numel():
        return total
    for start in range(0, inner, interval):
        a, b = (operand.values[:, start : start + interval] for operand in (left, right))
        total += few_bits(a, b, accumulation) * _scale_at(left, start) * _scale_at(right, start).t()
    return total


def _scale_at(operand: Quantized, column: int) -> Tensor:
    """Return the scale of every row for the block that this column is in, as (rows, 1)."""
    high, wide = operand.cast.block
    scale = (operand.scales * operand.tensor_scale)[:, column // wide if wide else 0]
    rows = operand.values.shape[0]
    return scale.repeat_interleave(high or rows)[:rows, None]


# --- the device's own scaled matrix products, and why one cannot be used: asked by trying a small one

_SHARED_SCALES: dict[Block, str] = {TENSOR: "TensorWise", ROW: "RowWise"}
_MULTIPLE = 16  # CUDA's kernels want sides that are multiples of this


def refusal(left: Cast, right: Cast, device: torch.device, dtype: torch.dtype) -> str | None:
    """Say why no kernel of this device multiplies operands cast like that; None where one does."""
    if left.element.dtype is None or right.element.dtype is None:
        return "PyTorch casts nothing to four bits"
    if left.block not in _SHARED_SCALES or right.block != left.block:
        return (
            f"kernels are used for scales per tensor or row, not {left.granularity} with {right.granularity}"
        )
    return _tried(left.element.dtype, right.element.dtype, left.block, device, dtype)


def multiply(left: Quantized, right: Quantized, dtype: torch.dtype) -> Tensor:
    """Return left · rightᵀ by the device's kernel; ``refusal`` says where there is one."""
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
    if not hasattr(F, "scaled_mm"):  # an older PyTorch
        if block == TENSOR:
            return torch._scaled_mm(a, b, scale_a.reshape(()), scale_b.reshape(()), out_dtype=dtype)
        return torch._scaled_mm(a, b, scale_a, scale_b.t(), out_dtype=dtype)
    kind: Any = getattr(F.ScalingType, _SHARED_SCALES[block])
    if block == TENSOR:
        scale_a, scale_b = scale_a.reshape(()), scale_b.reshape(())
    else:
        scale_b = scale_b.t()
    return F.scaled_mm(a, b, scale_a, kind, scale_b, kind, output_dtype=dtype)


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
