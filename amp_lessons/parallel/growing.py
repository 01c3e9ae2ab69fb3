"""The error of a mean over more and more ranks, by the way on which it is added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from amp_lessons._base.arguments import require, require_items, require_number, require_whole
from amp_lessons.formats import FloatFormat
from amp_lessons.parallel.reductions import reduction

_MOST_DRAWN = 24  # so many bits tell in float32 which ranks are in a sum


@dataclass(frozen=True)
class Growth:
    """Errors of the same reduction over more and more ranks.

    All have one entry for each of ``ranks``: ``hops``, how many roundings lie on the longest way; ``errors``,
    which are ``Reduction.relative_error``, inf or NaN where the result is; and ``sizes``, ``Reduction.size``.
    """

    ranks: tuple[int, ...]
    hops: tuple[int, ...]
    errors: tuple[float, ...]
    sizes: tuple[float, ...]


def growth(
    tensors: Tensor,
    dtype: torch.dtype | FloatFormat,
    algorithm: str = "ring",
    op: str = "mean",
    ranks: Sequence[int] | None = None,
) -> Growth:
    """Return what ``reduction`` says of the first n of ``tensors`` (ranks, …), for each n in ``ranks``.

    None stands for all powers of two from 2 to as many as there are. Raises TypeError or ValueError for
    others.
    """
    if not require(tensors, Tensor, "tensors", "one tensor (ranks, …)").dim():
        raise ValueError("tensors is one tensor (ranks, …), not a single number")
    counts = powers_of_two(len(tensors)) if ranks is None else require_items(ranks, int, "ranks", "a number")
    if not counts or min(counts) < 1 or max(counts) > len(tensors):
        raise ValueError(
            f"ranks lie between 1 and {len(tensors)}, as tensors has, and there is at least one: {counts}"
        )
    found = [reduction(tensors[:n], dtype, algorithm, op) for n in counts]
    return Growth(
        counts,
        tuple(len(each.hops) - 1 for each in found),
        tuple(each.relative_error for each in found),
        tuple(each.size for each in found),
    )


def powers_of_two(most: int) -> tuple[int, ...]:
    """Return the powers of two from 2 to at most ``most``."""
    return tuple(2**k for k in range(1, require_whole(most, "most").bit_length()))


def rank_gradients(ranks: int, elements: int = 128, *, noise: float = 0.1, seed: int = 0) -> Tensor:
    """Return made-up gradients (ranks, elements), float32: one that all ranks share, and noise of their own.

    ``noise`` is how many times as large the noise is. Little of it stands for large batches, or for the
    beginning of training; much of it for small batches, late. Raises TypeError or ValueError for others.
    """
    require_whole(ranks, "ranks")
    require_whole(elements, "elements")
    generator = torch.Generator().manual_seed(require_whole(seed, "seed", least=0))
    shared = torch.randn(elements, generator=generator, dtype=torch.float32)
    own = torch.randn(ranks, elements, generator=generator, dtype=torch.float32)
    return shared + require_number(noise, "noise") * own


@dataclass(frozen=True)
class Addition:
    """One addition on the way of a sum: at which hop, on which rank, and who is in the sum after it.

    ``parts`` says where its two parts were: (hop, rank) of each, the one on its own rank last.
    """

    hop: int
    rank: int
    contents: frozenset[int]
    parts: tuple[tuple[int, int], ...]


def additions(ranks: int, algorithm: str = "ring") -> tuple[Addition, ...]:
    """Return every addition on the way of one element, by watching ``reduction`` add up.

    Raises TypeError or ValueError for other than 1 to 24 ranks, or an unknown algorithm.
    """
    if require_whole(ranks, "ranks") > _MOST_DRAWN:
        raise ValueError(f"ranks is at most {_MOST_DRAWN} here, not {ranks}")
    # Rank r brings 2^r: the bits of a partial sum say who is in it
    brought = torch.exp2(torch.arange(ranks, dtype=torch.float32)).unsqueeze(1)
    latest = {frozenset([rank]): (0, rank) for rank in range(ranks)}
    found: list[Addition] = []
    for number, hop in enumerate(reduction(brought, torch.float32, algorithm, "sum").hops):
        for total, rank in zip(hop.partial_sums[:, 0].tolist(), hop.ranks[:, 0].tolist(), strict=True):
            contents = frozenset(r for r in range(ranks) if int(total) >> r & 1)
            if contents not in latest:
                found.append(Addition(number, rank, contents, _parts(contents, rank, latest)))
        latest.update({each.contents: (each.hop, each.rank) for each in found})
    return tuple(found)


def _parts(
    contents: frozenset[int], rank: int, latest: dict[frozenset[int], tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """Return where the two sums were that make up this one, among those that there are."""
    pair = next((part, contents - part) for part in latest if part < contents and contents - part in latest)
    return tuple(sorted((latest[part] for part in pair), key=lambda place: place[1] == rank))
