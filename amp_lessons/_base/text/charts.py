"""Curves in a terminal: all points of them, in lines of plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

_MARKS = "#."  # of the first curve, and of one beside it


def charted(
    curves: Mapping[str, Sequence[float]], columns: int = 64, rows: int = 10, *, by: str = "step"
) -> list[str]:
    """Draw one or two curves over the same axis, which runs from the first step to the last, as lines.

    A column shows a stretch of steps from its lowest number to its highest; where it has none that is finite
    it stays empty, and a line below says from when on there are none.
    """
    finite = [value for values in curves.values() for value in values if math.isfinite(value)]
    least, most = min(finite, default=0.0), max(finite, default=0.0)
    page = [[" "] * columns for _ in range(rows)]
    for mark, values in reversed(list(zip(_MARKS, curves.values(), strict=False))):
        for column, low, high in _stretches(values, columns):
            for row in range(_row(high, least, most, rows), _row(low, least, most, rows) + 1):
                page[row][column] = mark
    labels = {0: f"{most:.3g}", rows - 1: f"{least:.3g}"}
    width = max(map(len, labels.values()))
    lines = [f"{labels.get(i, ''):>{width}} |{''.join(line).rstrip()}" for i, line in enumerate(page)]
    return [*lines, *(f"{' ' * width}  {each}" for each in _legend(curves, by))]


def _stretches(values: Sequence[float], columns: int) -> Iterator[tuple[int, float, float]]:
    """Yield each column with the lowest and the highest finite number of its stretch, if it has one."""
    for column in range(columns):
        start, stop = (i * len(values) // columns for i in (column, column + 1))
        stretch = [value for value in values[start : max(stop, start + 1)] if math.isfinite(value)]
        if stretch:
            yield column, min(stretch), max(stretch)


def _row(value: float, least: float, most: float, rows: int) -> int:
    """Return the row of a number, from the top."""
    return round((most - value) / (most - least) * (rows - 1)) if most > least else rows - 1


def _legend(curves: Mapping[str, Sequence[float]], by: str) -> Iterator[str]:
    longest = max(map(len, curves.values()), default=0)
    marks = ", ".join(f"{mark} {name}" for mark, name in zip(_MARKS, curves, strict=False))
    yield f"{marks}; {by} 1 to {longest}"
    for name, values in curves.items():
        last = max((i for i, value in enumerate(values, 1) if math.isfinite(value)), default=0)
        if last < len(values):
            yield f"{name}: {values[-1]} from {by} {last + 1} on"
