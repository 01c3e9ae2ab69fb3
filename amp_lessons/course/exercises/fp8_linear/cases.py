"""What an 8-bit linear function is tried with: operands of three products, and what may become of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["ordinary", "finite", "not finite"]


@dataclass(frozen=True)
class ProductsCase:
    """``x`` (rows, inputs), ``weight`` (outputs, inputs), ``gradient`` (rows, outputs), in one dtype."""

    what: str
    x: Tensor
    weight: Tensor
    gradient: Tensor
    kind: Kind = "ordinary"


def cases() -> list[ProductsCase]:
    """List what to try, from the simplest to the last corner."""
    plain = _case("fp32 operands", 0)
    return [
        plain,
        _case("small operands", 1, sizes=(1e-3, 1e-4, 1e-7)),
        _case("large operands", 2, sizes=(1e4, 1e2, 1e3)),
        _case("bf16 operands", 3, dtype=torch.bfloat16),
        _case("fp16 operands", 4, dtype=torch.float16, sizes=(1.0, 0.05, 1e-3)),
        _case("x of zeros", 5, sizes=(0.0, 0.05, 1e-6), kind="finite"),
        _case("gradients of zeros", 6, sizes=(1.0, 0.05, 0.0), kind="finite"),
        ProductsCase("one element", plain.x[:1, :1], plain.weight[:1, :1], plain.gradient[:1, :1], "finite"),
        ProductsCase("x without rows", plain.x[:0], plain.weight, plain.gradient[:0], "finite"),
        ProductsCase(
            "a gradient with inf", plain.x, plain.weight, _with(plain.gradient, math.inf), "not finite"
        ),
        ProductsCase(
            "a gradient with NaN", plain.x, plain.weight, _with(plain.gradient, math.nan), "not finite"
        ),
        ProductsCase("x with inf", _with(plain.x, math.inf), plain.weight, plain.gradient, "not finite"),
    ]


def _case(
    what: str,
    seed: int,
    sizes: tuple[float, float, float] = (1.0, 0.05, 1e-6),
    dtype: torch.dtype = torch.float32,
    kind: Kind = "ordinary",
) -> ProductsCase:
    """Draw operands of these sizes; no side is as long as another, so that no matrix passes for another."""
    rows, inputs, outputs = 24, 40, 16
    x, weight, gradient = ((rows, inputs), (outputs, inputs), (rows, outputs))
    drawn = [
        (_spread(10 * seed + at, shape) * size).to(dtype)
        for at, (shape, size) in enumerate(zip((x, weight, gradient), sizes, strict=True))
    ]
    return ProductsCase(what, drawn[0], drawn[1], drawn[2], kind)


def _spread(seed: int, shape: tuple[int, int]) -> Tensor:
    """Draw numbers of different magnitudes, with one outlier, positive or negative."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-3.0).exp()
    numbers.view(-1)[7 * seed % numbers.numel()] = (-1) ** seed * 11.0
    return numbers


def _with(numbers: Tensor, value: float) -> Tensor:
    changed = numbers.clone()
    changed[3, 5] = value
    return changed
