"""FP8 as a precision of the benchmark: bf16 autocast, and linear layers by the device's own kernels.

These layers do what libraries run, and nothing besides: one scale per tensor, from the tensor at hand, E4M3
forward and E5M2 for gradients. ``fp8.convert`` also emulates, counts and refuses, which would be timed along.
Sums are the kernel's default; some libraries ask for a faster, shorter accumulator in the forward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from amp_lessons import fp8
from amp_lessons.fp8 import products
from amp_lessons.measure import PRECISIONS as WIDER_PRECISIONS
from amp_lessons.measure import precisions_on as wider_precisions_on

FP8 = "fp8"
PRECISIONS = (*WIDER_PRECISIONS, FP8)
_BESIDE = "bf16"  # what everything but linear layers computes in
_RECIPE = "tensorwise"
_MULTIPLE = 16  # what CUDA's kernels want the sides of matrices to be multiples of
_SMALLEST_AMAX = 1e-30  # zeros need a scale, too


def precisions_on(device: torch.device | str) -> tuple[str, ...]:
    """Return the precisions to benchmark on ``device``; FP8 needs kernels of its own."""
    return wider_precisions_on(device) + ((FP8,) if refusal(device) is None else ())


def refusal(device: torch.device | str) -> str | None:
    """Explain why FP8 is not benchmarked on this device; None where it is. The device is asked."""
    engines = fp8.engines(_RECIPE, device).values()
    return next((engine.reason for engine in engines if engine.name != "device"), None)


def surrounding(precision: str) -> str:
    """Return the precision that autocast and memory predictions know: bf16 for FP8, else the same."""
    return _BESIDE if precision == FP8 else precision


def convert(model: nn.Module) -> int:
    """Make linear layers compute in FP8, in place, and return how many there are now.

    Left alone are those with a side that is no multiple of 16, and classes derived from ``nn.Linear``.
    """
    linear = [layer for layer in model.modules() if type(layer) is nn.Linear]
    found = [each for each in linear if each.in_features % _MULTIPLE == each.out_features % _MULTIPLE == 0]
    for layer in found:
        layer.__class__ = KernelLinear
    return len(found)


class KernelLinear(nn.Linear):
    """``nn.Linear`` in bf16 whose three products the device's FP8 kernels compute; its weights stay."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., in_features) to (..., out_features) in bf16."""
        rows = x.to(torch.bfloat16).reshape(-1, self.in_features)
        # The gradient of the weight sums over rows, so that they, too, have to be a multiple
        made = _Products.apply(pad(rows, (0, 0, 0, -rows.shape[0] % _MULTIPLE)), self.weight)
        output = made[: rows.shape[0]].reshape(*x.shape[:-1], self.out_features)
        return output if self.bias is None else output + self.bias.to(output.dtype)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        (a, scale_a), (b, scale_b) = _cast(x, torch.float8_e4m3fn), _cast(weight, torch.float8_e4m3fn)
        ctx.save_for_backward(a, scale_a, b, scale_b)
        ctx.weight_dtype = weight.dtype
        return _multiply(a, b, (scale_a, scale_b), x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        a, scale_a, b, scale_b = ctx.saved_tensors
        g, scale_g = _cast(gradient, torch.float8_e5m2)
        to_x = _multiply(g, b.t(), (scale_g, scale_b), gradient.dtype)
        to_weight = _multiply(g.t(), a.t(), (scale_g, scale_a), ctx.weight_dtype)
        return to_x, to_weight


def _cast(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return ``x`` in 8 bits and what takes it back, both for a compiler to fuse."""
    limit = torch.finfo(dtype).max
    scale = x.abs().amax().float().clamp(min=_SMALLEST_AMAX) / limit
    return (x.float() / scale).clamp(-limit, limit).to(dtype), scale


def _multiply(left: Tensor, right: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    """Return left · rightᵀ; kernels want both to lie in memory row by row."""
    rows, columns = left.contiguous(), right.contiguous().t()
    # A CPU's kernel is made of a product that autocast would cast
    with torch.autocast(left.device.type, enabled=False):
        return products.scaled_mm(rows, columns, *scales, fp8.TENSOR, dtype)
