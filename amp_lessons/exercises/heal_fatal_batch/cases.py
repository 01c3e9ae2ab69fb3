"""Queries, keys and values to attend with, under masks from plain to empty, and what is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from amp_lessons.exercises.watching.tape import device_type
from amp_lessons.formats.dtypes import dtype_name

_WIDTH = 8
FAINT = "the only allowed key far below the others"


@dataclass(frozen=True)
class Case:
    """Tensors of shape (batch, heads, rows, 8), and which keys each query may see; ``about`` says which."""

    about: str
    queries: Tensor
    keys: Tensor
    values: Tensor
    allowed: Tensor

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what goes in, and of what is to come out."""
        return self.queries.dtype

    @property
    def what(self) -> str:
        """How to tell this case from the others."""
        return f"{dtype_name(self.dtype)}, {self.about}"

    @property
    def empty(self) -> Tensor:
        """Which queries, of shape (batch, heads, queries), may see no key at all."""
        return ~self.allowed.any(-1).expand(self.queries.shape[:-1])

    def inputs(self) -> list[Tensor]:
        """Copy queries, keys and values, so that gradients reach the copies."""
        return [each.clone().requires_grad_() for each in (self.queries, self.keys, self.values)]

    @staticmethod
    def right(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        """Attend in the dtype of the inputs; a query without a key gives zeros."""
        scores = queries @ keys.mT / _WIDTH**0.5
        some = allowed.any(-1, keepdim=True)
        return scores.masked_fill(~allowed & some, -torch.inf).softmax(-1) * allowed @ values


def cases() -> Iterator[Case]:
    """Yield what to try, from what the broken code can do to the last corner."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        yield _case("every key allowed", dtype, torch.ones(2, 1, 5, 6, dtype=torch.bool))
        yield _case("one text shorter than the others", dtype, _lengths(6, 4, 6))
        yield _case("one text empty", dtype, _lengths(6, 0, 3))
        yield _case("nothing but empty texts", dtype, _lengths(0, 0))
        yield _case("some queries without a key", dtype, _causal_behind_padding(6))
        yield _case("a single key", dtype, torch.tensor([True, False])[:, None, None, None])
        yield _equal_scores("an empty text whose scores are about -45", dtype, 4.0, [False] * 4)
        yield _equal_scores(FAINT, dtype, 65.0, [False, True, False, False])
    yield _case("4,096 keys", torch.float16, _lengths(4096, 1), queries=2)


def _lengths(*lengths: int) -> Tensor:
    places = torch.arange(max(*lengths, 6))
    return torch.stack([places < length for length in lengths])[:, None, None]


def _causal_behind_padding(count: int) -> Tensor:
    """Return the mask of a text whose first two places are padding: its first two queries see nothing."""
    places = torch.arange(count)
    return ((places[None] <= places[:, None]) & (places >= 2))[None, None]


def _case(about: str, dtype: torch.dtype, allowed: Tensor, queries: int = 0) -> Case:
    draw = torch.Generator().manual_seed(len(about))
    batch, keys = allowed.shape[0], allowed.shape[-1]
    rows = allowed.shape[-2] if allowed.shape[-2] > 1 else queries or keys

    def drawn(count: int) -> Tensor:
        return torch.randn(batch, 3, count, _WIDTH, generator=draw).to(device_type(), dtype)

    return Case(about, drawn(rows), drawn(keys), drawn(keys), allowed.to(device_type()))


def _equal_scores(about: str, dtype: torch.dtype, size: float, allowed: list[bool]) -> Case:
    """Return a case in which allowed keys have scores of about -2.8 times size², and others of 0.

    Where no key is allowed, all have those scores.
    """
    mask = torch.tensor(allowed).expand(1, 1, 2, 4)
    case = _case(about, dtype, mask)
    far = mask[:, :, :1].mT.to(case.keys.device)
    keys = torch.full_like(case.keys, -size) * (far if any(allowed) else ~far)
    return replace(case, queries=torch.full_like(case.queries, size), keys=keys)
