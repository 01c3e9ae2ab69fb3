"""The same mistake in other clothes: a source in which some pieces are exchanged, drawn by a seed.

A class in which everybody gets another seed has everybody mend other code. Names, the order of lines that
do not depend on each other, and ways to write the same differ; what is wrong stays. The pieces stand in the
broken source and in the mended one, and are exchanged in both alike.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Choice:
    """Ways to write the same: each a tuple of as many pieces, the first as the stub has them.

    A piece that is a Python name is exchanged wherever it stands as a whole word, unless it is an attribute;
    any other piece where it stands, which is once.
    """

    ways: tuple[tuple[str, ...], ...]

    def put(self, source: str, way: tuple[str, ...]) -> str:
        """Write ``source`` in this way. Raises ValueError where a piece is not to be found."""
        for old, new in zip(self.ways[0], way, strict=True):
            source = _exchanged(source, old, new)
        return source


def names(*ways: str) -> Choice:
    """Make the choice between names, several of which may change together: ``names("x, y", "a, b")``."""
    return Choice(tuple(tuple(re.findall(r"\w+", way)) for way in ways))


def pieces(*ways: tuple[str, ...]) -> Choice:
    """Make the choice between pieces of code."""
    return Choice(ways)


def drawn(choices: Iterable[Choice], seed: int) -> list[tuple[Choice, tuple[str, ...]]]:
    """Draw one way of every choice; seed 0 is the stub as it stands."""
    draw = random.Random(seed)
    return [(choice, draw.choice(choice.ways) if seed else choice.ways[0]) for choice in choices]


def written(source: str, ways: Iterable[tuple[Choice, tuple[str, ...]]]) -> str:
    """Write a source in the ways that were drawn."""
    for choice, way in ways:
        source = choice.put(source, way)
    return source


def _exchanged(source: str, old: str, new: str) -> str:
    if old == new:
        return source
    if old.isidentifier():
        return re.sub(rf"(?<![\w.]){old}\b", new, source)
    if source.count(old) != 1:
        raise ValueError(f"a piece stands once in a source, but {old!r} stands {source.count(old)} times")
    return source.replace(old, new)


# what a training loop of the exercises calls things; the arguments among these are passed by position
LOOP_NAMES = (
    names("inputs, targets", "x, y", "images, labels", "batch, wanted", "features, classes"),
    names("model", "net", "network"),
    names("loader", "batches", "train_loader", "data"),
    names("history", "means", "curve", "losses_by_epoch"),
    names("total", "running", "loss_sum", "epoch_loss"),
)
