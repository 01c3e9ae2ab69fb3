"""What a report says of each rank, and how it names them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from amp_lessons.audit.report.document import Document, RankEntry, ScaleEntry
from amp_lessons.text.tables import Table
from amp_lessons.text.words import listed, power_of_two

_MOST = 6  # of each
_LONGEST = 40  # characters: all of it stands in the report's own words


def ranks_in_words(ranks: Iterable[int]) -> str:
    """Name ranks: "rank 1", "ranks 0 and 2", "ranks 0 to 7"."""
    known = sorted(ranks)
    if len(known) == 1:
        return f"rank {known[0]}"
    in_a_row = known == list(range(known[0], known[-1] + 1))
    if in_a_row and len(known) > 2:
        return f"ranks {known[0]} to {known[-1]}"
    return f"ranks {listed([str(rank) for rank in known])}"


def ranks_table(document: Document) -> Table:
    """Return one row for each rank, what it was asked for and how it ended."""
    rows = [_row(rank) for rank in document["ranks"]]
    return Table(("rank", "steps", "skipped", "loss scale", "ended"), rows, "What each rank did")


def _row(rank: RankEntry) -> tuple[str, ...]:
    return (
        str(rank["rank"]),
        f"{rank['steps']:,}",
        ", ".join(_few(str(step + 1) for step in rank["skipped"])) or "none",
        ", ".join(_few(_say(each["scale"]) for each in _scales(rank))) or "–",
        textwrap.shorten(rank["ended"], _LONGEST, placeholder=" …") or "well",
    )


def _scales(rank: RankEntry) -> list[ScaleEntry]:
    """Return the loss scales of a rank, none where all it had was 1."""
    return [] if all(each["scale"] == 1.0 for each in rank["scales"]) else rank["scales"]


def _few(words: Iterable[str]) -> Iterator[str]:
    known = list(words)
    yield from known[:_MOST]
    if len(known) > _MOST:
        yield f"{len(known) - _MOST:,} more"


def _say(scale: float) -> str:
    return power_of_two(scale) if 0 < scale < float("inf") else f"{scale}"
