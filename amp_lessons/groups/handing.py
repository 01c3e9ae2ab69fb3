"""Handing out: a seed for each group, so that no two have the same variant while there are others."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from amp_lessons.arguments import require_whole
from amp_lessons.groups.work import Variant, Work

_TRIES = 100  # so many seeds in a row without a new variant: then all count as handed out
_LARGEST_SEED = 9999  # what a teacher reads out, and a learner types


@dataclass(frozen=True)
class Handed:
    """What one group gets; ``shared_with`` is the group that has the same, 0 while variants last."""

    group: int
    variant: Variant
    shared_with: int = 0


def hand_out(work: Work, groups: int, seed: int) -> tuple[Handed, ...]:
    """Draw a variant for each of so many groups, counted from 1.

    The same ``seed`` draws the same, and more groups change nothing for those before them. Once variants
    are used up, they are handed out anew.
    """
    require_whole(groups, "groups")
    return tuple(itertools.islice(_handed(work, seed), groups))


def _handed(work: Work, seed: int) -> Iterator[Handed]:
    seeds = random.Random(f"{seed} {work.id}")
    first: dict[str, int] = {}
    this_round: set[str] = set()
    for group in itertools.count(1):
        variant = _new(work, seeds, this_round)
        if variant is None:
            this_round.clear()
            variant = _new(work, seeds, this_round)
            assert variant is not None  # nothing is handed out in this round
        this_round.add(variant.task)
        yield Handed(group, variant, first.get(variant.task, 0))
        first.setdefault(variant.task, group)


def _new(work: Work, seeds: random.Random, handed: set[str]) -> Variant | None:
    """Draw until a variant is none of those that were ``handed``; None if they seem to be all."""
    for _ in range(_TRIES):
        variant = work.drawn(seeds.randint(1, _LARGEST_SEED))
        if variant.task not in handed:
            return variant
    return None
