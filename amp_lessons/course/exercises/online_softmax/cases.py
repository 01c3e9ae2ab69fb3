"""Blocks of scores and values, handed out once, and what becomes of them in fp64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from amp_lessons.formats.dtypes import dtype_name


@dataclass(frozen=True)
class BlocksCase:
    """Scores (..., keys) and values (keys, d) in 16 bits, cut into blocks of these ``lengths``."""

    name: str
    scores: Tensor
    values: Tensor
    lengths: tuple[int, ...]
    autocast: bool = False

    @property
    def what(self) -> str:
        """What these blocks are, in which dtype, and whether autocast is on, as a message names them."""
        autocast = " under autocast" if self.autocast else ""
        return f"{self.name} in {dtype_name(self.scores.dtype)}{autocast}"

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the blocks, views of what the case holds."""
        yield from zip(
            self.scores.split(list(self.lengths), -1), self.values.split(list(self.lengths)), strict=True
        )

    @property
    def empty(self) -> Tensor:
        """Which rows see no key at all, of shape (..., 1)."""
        return (self.scores == -torch.inf).all(-1, keepdim=True)

    @property
    def nbytes(self) -> int:
        """The bytes of all blocks together."""
        return self.scores.nbytes + self.values.nbytes

    def weights(self) -> Tensor:
        """Return the softmax over all scores in fp64, zeros for a row that sees no key."""
        return self.scores.double().softmax(-1).masked_fill(self.empty, 0.0)

    def result(self) -> Tensor:
        """Return what all blocks come to, in fp64."""
        return self.weights() @ self.values.double()

    def errors(self, seen: Tensor, wanted: Tensor) -> Tensor:
        """Return how far off each number is, over the mean magnitude of the values that it is made of."""
        magnitude = self.weights() @ self.values.double().abs()
        return (seen.double() - wanted).abs() / magnitude.clamp(min=1e-30)

    @property
    def tolerance(self) -> float:
        """How far off a result may be: sums and exponentials in fp32, and a maximum in fp32 per block."""
        largest = float(self.scores[self.scores.isfinite()].double().abs().max())
        return 5e-5 + len(self.lengths) * largest * 2.0**-24


def cases(draw: torch.Generator) -> Iterator[BlocksCase]:
    """Yield what to try, from the simplest to the last corner."""
    for dtype in (torch.bfloat16, torch.float16):
        yield _drawn("scores that grow from block to block", draw, dtype, rise=6.0)
        yield _drawn("scores that fall from block to block", draw, dtype, rise=-150.0)
        yield _drawn("one row of scores", draw, dtype, rows=(), rise=2.0)
        yield _drawn("blocks of a single key", draw, dtype, lengths=(1, 1, 1), rise=1.0)
        yield _drawn("a single block", draw, dtype, lengths=(24,))
        yield _drawn("scores around 300", draw, dtype, offset=300.0)
        yield _drawn("scores around -300", draw, dtype, offset=-300.0)
        yield _drawn("scores of several heads", draw, dtype, rows=(2, 3, 5), lengths=(9, 17, 4), rise=3.0)
        yield _drawn(
            "many like blocks of scores", draw, dtype, rows=(4,), lengths=(64,) * 64, spread=0.3, d=4
        )
        yield _masked(draw, dtype)
    for dtype in (torch.bfloat16, torch.float16):
        yield replace(_drawn("scores that grow from block to block", draw, dtype, rise=6.0), autocast=True)
        yield replace(_masked(draw, dtype), autocast=True)


def poisoned(draw: torch.Generator) -> BlocksCase:
    """Return blocks in which a single score of the first row is NaN."""
    case = _drawn("blocks with a NaN among the scores", draw, torch.bfloat16)
    case.scores[0, 20] = torch.nan
    return case


def _drawn(
    name: str,
    draw: torch.Generator,
    dtype: torch.dtype,
    *,
    rows: tuple[int, ...] = (16,),
    lengths: tuple[int, ...] = (16, 16, 16, 7),
    rise: float = 0.0,
    offset: float = 0.0,
    spread: float = 2.0,
    d: int = 8,
) -> BlocksCase:
    """Draw scores that ``rise`` by so much per block; the values of a column have one sign."""
    steps = torch.repeat_interleave(torch.arange(len(lengths)) - len(lengths) / 2, torch.tensor(lengths))
    scores = torch.randn(*rows, sum(lengths), generator=draw) * spread + offset + rise * steps
    signs = torch.tensor([1.0, -1.0]).repeat(d // 2)
    values = (torch.rand(sum(lengths), d, generator=draw) + 0.25) * signs
    return BlocksCase(name, scores.to(dtype), values.to(dtype), lengths)


def _masked(draw: torch.Generator, dtype: torch.dtype) -> BlocksCase:
    """Draw scores of which rows do not see a first, a middle, a last block, or anything."""
    case = _drawn("scores with a mask of -inf", draw, dtype, rise=1.0)
    for row, hidden in enumerate((slice(0, 16), slice(16, 32), slice(48, 55), slice(0, 48), slice(None))):
        case.scores[row, hidden] = -torch.inf
    case.scores[5, ::2] = -torch.inf
    return case
