"""A ledger as a table in which every dtype is a chip, filled row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons.autocast import Row
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.style import ACCENT, GRID, INK, QUIET, house_style
from amp_lessons.views.figures.chips import draw_chip

ROWS_IN_VIEW = 12
_CHIPS_PER_CELL = 4
_CHIP_WIDTH = 0.051
# Where each column begins, as a share of the width.
_COLUMNS = {
    "": 0.005,
    "module": 0.045,
    "operation": 0.205,
    "called with": 0.385,
    "casts": 0.6,
    "result": 0.75,
    "rule": 0.815,
}


def ledger_picture(rows: Sequence[Row], current: int) -> Picture:
    """Draw the rows around number ``current`` (from 0): in full what ran up to it, the rest by name."""
    first = min(max(0, current - ROWS_IN_VIEW + 3), max(0, len(rows) - ROWS_IN_VIEW))
    window = rows[first : first + ROWS_IN_VIEW]
    with house_style():
        figure = Figure(figsize=(9, 0.29 * (len(window) + 1)))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(len(window) + 1, 0)
        for title, x in _COLUMNS.items():
            axes.text(x, 0.5, title, va="center", fontweight="bold", fontsize=9)
        axes.axhline(0.98, color=GRID)
        for line, row in enumerate(window, start=1):
            _draw_row(axes, line, row, first + line, ran=first + line <= current + 1)
            if first + line == current + 1:
                axes.axhspan(line + 0.03, line + 0.97, color=ACCENT, alpha=0.1, lw=0)
    return Picture(figure)


def say_rule(row: Row) -> str:
    """Say which rule decided the dtype, and of a composite operation the one inside that it applied to."""
    return f"{row.rule} through {row.through.removeprefix('aten::')}" if row.through else row.rule


def _draw_row(axes: Axes, line: int, row: Row, number: int, ran: bool) -> None:
    y = line + 0.5
    colour = INK if ran else QUIET
    texts = {"": str(number), "module": row.module or "(none)", "operation": _operation(row)}
    for column, text in texts.items():
        axes.text(_COLUMNS[column], y, text, va="center", fontsize=8.5, color=colour)
    if not ran:
        return
    axes.text(_COLUMNS["rule"], y, say_rule(row), va="center", fontsize=8.5)
    for place, dtype in enumerate(row.input_dtypes[:_CHIPS_PER_CELL]):
        _draw_chip(axes, _COLUMNS["called with"] + place * _CHIP_WIDTH, y, dtype_name(dtype))
    if len(row.input_dtypes) > _CHIPS_PER_CELL:
        more = f"+{len(row.input_dtypes) - _CHIPS_PER_CELL}"
        x = _COLUMNS["called with"] + _CHIPS_PER_CELL * _CHIP_WIDTH - 0.006
        axes.text(x, y, more, va="center", fontsize=8, color=QUIET)
    _draw_casts(axes, _COLUMNS["casts"], y, row)
    if row.output_dtype is not None:
        _draw_chip(axes, _COLUMNS["result"], y, dtype_name(row.output_dtype))


def _draw_casts(axes: Axes, x: float, y: float, row: Row) -> None:
    """Draw how many casts there were from one dtype to another; all casts of a row go the same way."""
    kinds = Counter((dtype_name(cast.source), dtype_name(cast.target)) for cast in row.casts)
    for (source, target), count in list(kinds.items())[:1]:
        axes.text(x, y, f"{count} ×", va="center", fontsize=8.5)
        _draw_chip(axes, x + 0.027, y, source)
        axes.text(x + 0.027 + _CHIP_WIDTH - 0.004, y, "→", va="center", ha="center", fontsize=9)
        _draw_chip(axes, x + 0.033 + _CHIP_WIDTH, y, target)


def _draw_chip(axes: Axes, left: float, y: float, name: str) -> None:
    draw_chip(axes, left + 0.02, y, name, fontsize=8)


def _operation(row: Row) -> str:
    name = row.op.removeprefix("aten::")
    return f"← {name}" if row.phase == "backward" else name
