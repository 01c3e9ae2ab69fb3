"""Gradients of several ranks: what each of them holds, cut into unequal chunks, and the mean in fp64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Scenario:
    """One reduction. ``gradients`` are (ranks, elements), ``lengths`` those of the chunks."""

    name: str
    gradients: Tensor
    lengths: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks, and of chunks."""
        return len(self.lengths)

    @property
    def what(self) -> str:
        """The name of this reduction and its number of ranks, as a message names them."""
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"for {self.name} on {ranks}"

    def chunks(self) -> list[list[Tensor]]:
        """Return the chunks of every rank, each time new ones."""
        return [[each.clone() for each in row.split(list(self.lengths))] for row in self.gradients]

    @cached_property
    def mean(self) -> Tensor:
        """The mean over ranks in fp64."""
        return self.gradients.double().mean(0)

    @cached_property
    def tolerance(self) -> Tensor:
        """How far sums in fp32 may be off: the unit of rounding per addition and division, twice that.

        It is by the magnitudes that were added, not by what is left of them (N. J. Higham, Accuracy and
        Stability of Numerical Algorithms, 2002, 4.2).
        """
        return 2 * (self.ranks + 1) * 2.0**-24 * self.gradients.double().abs().mean(0)


def scenarios(draw: torch.Generator) -> list[Scenario]:
    """Draw the reductions of a check: sizes that hide nothing, one poisoned, the largest last."""
    return [
        _drawn(draw, "fp32 gradients", 2, (4, 7), torch.float32),
        _drawn(draw, "bf16 gradients", 3, (3, 1, 6), torch.bfloat16),
        _cancelling(),
        _drawn(draw, "fp16 gradients whose sum fp16 cannot hold", 4, (2, 5, 3, 1), torch.float16, size=6e4),
        _drawn(draw, "fp32 gradients", 1, (5,), torch.float32),
        _drawn(draw, "gradients with an empty chunk", 3, (4, 0, 2), torch.float32),
        _poisoned(draw),
        _drawn(draw, "fp32 gradients", 5, (9, 2, 4, 1, 7), torch.float32),
    ]


def _drawn(
    draw: torch.Generator,
    name: str,
    ranks: int,
    lengths: tuple[int, ...],
    dtype: torch.dtype,
    size: float = 1.0,
) -> Scenario:
    shape = ranks, sum(lengths)
    values = torch.rand(shape, generator=draw).mul(0.5).add(0.5)  # of one sign: sums grow with every rank
    uneven = torch.rand(shape, generator=draw).mul(-3 if size == 1 else -0.1).exp()
    return Scenario(name, (values * uneven * size).to(dtype), lengths)


def _cancelling() -> Scenario:
    gradients = torch.tensor([[256.0, 1.0, -256.0], [1.0, 256.0, 1.0], [-256.0, -256.0, 256.0]])
    return Scenario("256 + 1 - 256 in bf16", gradients.bfloat16(), (1, 1, 1))


def _poisoned(draw: torch.Generator) -> Scenario:
    gradients = _drawn(draw, "", 3, (3, 2, 4), torch.float16).gradients
    gradients[1, 4] = torch.inf
    return Scenario("gradients of which one is inf", gradients, (3, 2, 4))
