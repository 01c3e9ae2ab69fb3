"""The tensors that a scaled cast is tried with: what they are called, and what is asked of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["ordinary", "zero", "tiny", "not finite"]


@dataclass(frozen=True)
class CastCase:
    """A tensor to cast; ``kind`` says what holds of it: numbers that fp32 has a scale for, or others."""

    what: str
    x: Tensor
    kind: Kind = "ordinary"

    @property
    def amax(self) -> float:
        """The largest magnitude."""
        return float(self.x.double().abs().max())


def cases() -> list[CastCase]:
    """List what to try, from the simplest to the last corner."""
    return [*_ordinary(), *_corners(), *_not_finite()]


def _spread(seed: int, *shape: int, factor: float = 1.0) -> Tensor:
    """Draw numbers of very different magnitudes with a few outliers, the largest negative or positive."""
    draw = torch.Generator().manual_seed(seed)
    numbers = torch.randn(shape, generator=draw) * torch.rand(shape, generator=draw).mul(-6.0).exp()
    numbers.view(-1)[seed % numbers.numel()] = (-1) ** seed * 30.0
    return numbers * factor


def _ordinary() -> list[CastCase]:
    # A mantissa near 2 is where a power of two rounded the wrong way saturates, one near 1 where it wastes
    near_two, near_one = math.nextafter(2.0, 0.0) * 0.97, 1.01
    return [
        CastCase("weights", _spread(4, 32, 32, factor=0.1)),  # first: here no mistake makes all of them 0
        CastCase("many numbers of one size", torch.linspace(0.3, -0.4, 5000).roll(2500)),
        CastCase("small gradients", _spread(2, 40, 25, factor=1e-8)),
        CastCase("large activations, the largest negative", _spread(3, 64, 16, factor=1e4)),
        *(CastCase(f"numbers up to {top:.3g}", _up_to(top)) for top in (near_two, near_one, 1.5, 1.7)),
        CastCase("bf16 activations", _spread(5, 64, 64).bfloat16()),
        CastCase("fp16 gradients", _spread(6, 64, 64, factor=3e-6).half()),
        CastCase("a transposed matrix", _spread(7, 8, 24, factor=3.0).t()),
        CastCase("three dimensions", _spread(8, 2, 3, 40, factor=1e-3)),
    ]


def _up_to(top: float) -> Tensor:
    numbers = _spread(9, 300)
    return numbers / numbers.abs().max() * top


def _corners() -> list[CastCase]:
    return [
        CastCase("a single number", torch.tensor(-0.013)),
        CastCase("one element", torch.tensor([[3000.0]])),
        CastCase("zeros", torch.zeros(3, 5), "zero"),
        CastCase("fp16 zeros", torch.zeros(7, dtype=torch.float16), "zero"),
        CastCase("an empty tensor", torch.empty(0, 4), "zero"),
        CastCase("numbers up to 1e-28", _up_to(1e-28)),
        CastCase("numbers up to 3e38", _up_to(3e38)),
        CastCase("subnormal numbers of fp32", _up_to(1e-38) * 1e-4, "tiny"),
    ]


def _not_finite() -> list[CastCase]:
    return [
        CastCase(f"{value} among other numbers", _with(value, dtype), "not finite")
        for value in (math.inf, -math.inf, math.nan)
        for dtype in (torch.float32, torch.bfloat16)
    ]


def _with(value: float, dtype: torch.dtype) -> Tensor:
    numbers = _spread(10, 6, 8)
    numbers[2, 3] = value
    return numbers.to(dtype)
