"""Blocks that share an exponent, and which exponents are right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from amp_lessons.course.exercises.small_formats.watching_there import too_large_from
from amp_lessons.formats import FORMATS

ELEMENT = FORMATS["fp8_e4m3"]
EXPONENTS = range(-127, 128)  # those that E8M0 has
NAN = 128  # 128 + 127 is 255, the code of its NaN


@dataclass(frozen=True)
class BlockQuestion:
    """A block; ``what`` says which."""

    what: str
    block: Tensor

    @cached_property
    def amax(self) -> float:
        """The largest magnitude."""
        return float(self.block.double().abs().max())

    @cached_property
    def right(self) -> frozenset[int]:
        """The exponents that are right: any for zeros, NaN's where it is needed, else the smallest that fits.

        One less is right as well where the largest magnitude is rounded down to the largest number.
        """
        if not math.isfinite(self.amax):
            return frozenset({self.smallest})
        if self.amax == 0:
            return frozenset(EXPONENTS)
        rounded = next(k for k in EXPONENTS if self.lands_at(k) <= too_large_from(ELEMENT))
        return frozenset({self.smallest, rounded})

    @cached_property
    def smallest(self) -> int:
        """The smallest exponent at which the largest magnitude is no larger than the largest number."""
        if not math.isfinite(self.amax):
            return NAN
        return next(k for k in EXPONENTS if not self.lands_at(k) > ELEMENT.max)

    def lands_at(self, exponent: int) -> float:
        """Return what becomes of the largest magnitude before the cast; inf where no float is so large."""
        try:
            return math.ldexp(self.amax, -exponent)
        except OverflowError:
            return math.inf


def questions() -> list[BlockQuestion]:
    """List the blocks, the plainest first."""
    return [*_ordinary(), *_next_to_a_power(), *_of_16_bits(), *_corners()]


def _block(seed: int, top: float, length: int = 32) -> Tensor:
    """Draw numbers of very different magnitudes; the largest is ``top``, somewhere, negative if that is."""
    draw = torch.Generator().manual_seed(seed)
    block = torch.randn(length, generator=draw) * torch.rand(length, generator=draw).mul(-5.0).exp()
    block = block / block.abs().max() * abs(top) * 0.5
    block[seed % length] = top
    return block


def _ordinary() -> list[BlockQuestion]:
    # On the first all agree but the ceiling; int() saturates at 700, the nearest at 600, the floor at 500
    tops = [
        3.43,
        700.0,
        600.0,
        500.0,
        300.0,
        100.0,
        7.5,
        0.013,
        -3.0,
        480.0,
        -0.1,
        1.9,
        2e-4,
        3.1e5,
        31.0,
        1.4e-9,
    ]
    return [
        BlockQuestion(f"a block up to {abs(top):g}{', the largest negative' * (top < 0)}", _block(seed, top))
        for seed, top in enumerate(tops)
    ]


def _next_to_a_power() -> list[BlockQuestion]:
    return [
        BlockQuestion(f"a block up to {name}", _block(seed, top))
        for seed, (name, top) in enumerate(
            [
                ("448", 448.0),
                ("448 / 2**20", 448.0 * 2.0**-20),
                ("448 · 2**40", 448.0 * 2.0**40),
                ("512", 512.0),
                ("2**-9", 2.0**-9),
                ("448.00003, the next fp32 number", math.nextafter(448.0, 500.0) + 2.0**-15),
                ("460", 460.0),
                ("466", 466.0),
            ]
        )
    ]


def _of_16_bits() -> list[BlockQuestion]:
    return [
        BlockQuestion("a block of bf16", _block(3, 0.37).bfloat16()),
        BlockQuestion("a block of fp16", _block(4, 52000.0).half()),
        BlockQuestion("a block of fp16 up to 3e-5", _block(5, 3e-5).half()),
        BlockQuestion("a block of bf16 up to 470", _block(6, 470.0).bfloat16()),
    ]


def _corners() -> list[BlockQuestion]:
    return [
        BlockQuestion("a block of zeros", torch.zeros(32)),
        BlockQuestion("a shorter block, the last of its row", _block(7, 0.6, 5)),
        BlockQuestion("a block of one number", torch.tensor([-19.0])),
        BlockQuestion("a block up to 3e38", _block(8, 3e38)),
        BlockQuestion("a block up to 1e-37", _block(9, 1e-37)),
        BlockQuestion("a block of subnormal numbers of fp32", _block(10, 1e-40)),
        BlockQuestion("a block with inf", _with(math.inf)),
        BlockQuestion("a block with -inf", _with(-math.inf)),
        BlockQuestion("a block with NaN", _with(math.nan)),
        BlockQuestion("a block of bf16 with NaN", _with(math.nan).bfloat16()),
    ]


def _with(value: float) -> Tensor:
    block = _block(11, 2.5)
    block[20] = value
    return block
