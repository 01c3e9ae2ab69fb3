"""The steps in a few words, of each optimizer and of each rank."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from amp_lessons._base.text.tables import Table
from amp_lessons._base.text.words import fraction, listed, number, power_of_two
from amp_lessons.audit.seen import RankSeen, StepSeen, mean

if TYPE_CHECKING:
    from amp_lessons.audit.report.report import Report

_HEAD = ("optimizer", "steps", "skipped", "loss", "gradient norm", "lost updates")
_MOST_NAMED = 6
LOST_UPDATES = (
    "Lost updates: the fraction of the weights with a gradient that a step left exactly as they were."
)


def steps_table(report: Report) -> Table:
    """Return one row for each optimizer; what changed while it trained is told from first to last."""
    rows = [_row(number, steps) for number, steps in by_optimizer(report).items()]
    return Table(_HEAD, rows, "What each optimizer was asked for, and what came of it, from first to last")


def by_optimizer(report: Report) -> dict[int, list[StepSeen]]:
    """Return the steps of each optimizer, in order."""
    found: dict[int, list[StepSeen]] = {}
    for step in report.steps:
        found.setdefault(step.optimizer, []).append(step)
    return dict(sorted(found.items()))


def remarks(report: Report) -> Iterator[str]:
    """Say for each optimizer where its loss scale went, and which steps were skipped."""
    optimizers = by_optimizer(report)
    for at, steps in optimizers.items():
        of = f" of optimizer {at + 1}" if len(optimizers) > 1 else ""
        passes = {step.backwards for step in steps}
        if passes != {1}:
            few, many = min(passes), max(passes)
            count = f"{many}" if few == many else f"{few} to {many}"
            yield f"The loss of a step{of} is the sum of the losses of its {count} backward passes."
        path = scale_path(steps)
        if path != [(steps[0].index, 1.0)]:
            yield f"The loss scale{of}: {_say_path(path)}."
        skipped = [step.index for step in steps if not step.happened]
        if skipped:
            yield f"Skipped steps{of}: {_listed(skipped)}."
    if any(step.lost_updates is not None for step in report.steps):
        yield LOST_UPDATES


def scale_path(steps: Sequence[StepSeen]) -> list[tuple[int, float]]:
    """Return the steps from which on another loss scale was used, with that scale."""
    path: list[tuple[int, float]] = []
    for step in steps:
        if not path or step.scale != path[-1][1]:
            path.append((step.index, step.scale))
    return path


def _row(number: int, steps: Sequence[StepSeen]) -> tuple[str, ...]:
    skipped = sum(not step.happened for step in steps)
    lost = mean(step.lost_updates for step in steps)
    return (
        str(number + 1),
        f"{len(steps):,}",
        f"{skipped:,} ({fraction(skipped / len(steps))})" if skipped else "none",
        _from_to([step.loss for step in steps]),
        _from_to([step.gradient_norm for step in steps if step.happened]),
        "–" if lost is None else fraction(lost),
    )


def _from_to(numbers: Sequence[float | None]) -> str:
    known = [number for number in numbers if number is not None]
    if not known:
        return "–"
    return number(known[0], 3) if len(known) == 1 else f"{number(known[0], 3)} → {number(known[-1], 3)}"


def _say_path(path: Sequence[tuple[int, float]]) -> str:
    first, *others = [_say_scale(scale) for _, scale in path]
    turns = [f"{said} from step {index + 1}" for (index, _), said in zip(path[1:], others, strict=True)]
    if len(turns) > _MOST_NAMED:
        left_out = len(turns) - _MOST_NAMED
        turns = [*turns[:3], f"{left_out} more changes", *turns[-3:]]
    return ", ".join([first, *turns])


def _say_scale(scale: float) -> str:
    return power_of_two(scale) if math.isfinite(scale) and scale > 0 else f"{scale}"


def _listed(indices: Sequence[int]) -> str:
    shown = ", ".join(str(index + 1) for index in indices[: 2 * _MOST_NAMED])
    more = len(indices) - 2 * _MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown


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


def ranks_table(report: Report) -> Table:
    """Return one row for each rank, what it was asked for and how it ended."""
    rows = [_row_of_rank(rank) for rank in report.ranks]
    return Table(("rank", "steps", "skipped", "loss scale", "ended"), rows, "What each rank did")


def _row_of_rank(rank: RankSeen) -> tuple[str, ...]:
    scaled = any(each.scale != 1.0 for each in rank.scales)
    return (
        str(rank.rank),
        f"{rank.steps:,}",
        ", ".join(_few(str(step + 1) for step in rank.skipped)) or "none",
        ", ".join(_few(_say_scale(each.scale) for each in rank.scales)) if scaled else "–",
        textwrap.shorten(rank.ended, _LONGEST, placeholder=" …") or "well",
    )


def _few(words: Iterable[str]) -> Iterator[str]:
    known = list(words)
    yield from known[:_MOST]
    if len(known) > _MOST:
        yield f"{len(known) - _MOST:,} more"
