"""The ledger of a network, row by row: which operation ran in which dtype, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from amp_lessons._base.drawing.axes import sheet
from amp_lessons._base.drawing.picture import Picture
from amp_lessons._base.drawing.style import ACCENT, GRID, INK, QUIET, SMALL, end_that_fits, house_style
from amp_lessons.autocast import Cast, Ledger, RecordingError, Row
from amp_lessons.course.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.course.views.base.number_line import draw_chip
from amp_lessons.course.views.base.view import View
from amp_lessons.course.views.widgets.atlas import DEVICE_NAMES
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES

Recorder = Callable[..., Ledger]
DTYPES = [*HALVES.items(), ("fp32, no autocast", None)]
PASSES = [("forward", False), ("forward and backward", True)]


class LedgerView(View):
    """Step through the operations of real networks, by the rules and in the dtype that are chosen."""

    on_pages = ("_slider", "_rules", "_dtype")

    row = ControlValue[int]("_slider", "The number of the operation that is explained, from 1.")
    network = ControlValue[str]("_network", "The name of the network whose ledger is shown.")
    device_type = ControlValue[str]("_rules", "Whose rules apply: cuda or cpu.")
    dtype = ControlValue[torch.dtype | None]("_dtype", "Autocast's dtype; None is a run without autocast.")
    backward = ControlValue[bool]("_pass", "Whether the backward pass follows the forward pass.")

    def __init__(
        self,
        networks: Mapping[str, Recorder],
        network: str | None = None,
        *,
        device_type: str = "cuda",
        dtype: torch.dtype | None = torch.float16,
        backward: bool = False,
    ) -> None:
        """Show the ledgers of ``networks``: by name, functions that record one; ``network`` is shown first.

        Each is called with ``device_type`` and ``dtype``: ``partial(autocast.record, model, images)``, say.
        """
        self._networks = dict(networks)
        self._ledgers: dict[tuple[str, str, torch.dtype | None], Ledger] = {}
        self._rows: tuple[Row, ...] = ()
        first = network or next(iter(self._networks))
        self._network = dropdown("network", list(self._networks), first)
        self._rules = dropdown(
            "rules of", [(DEVICE_NAMES[name], name) for name in ("cuda", "cpu")], device_type
        )
        self._dtype = dropdown("dtype", DTYPES, dtype)
        self._pass = dropdown("pass", PASSES, backward)
        self._slider = Slider("Operation", 1, 1, 1)
        choices = [self._network, self._rules, self._dtype, self._pass]
        super().__init__([row(*choices), self._slider], alt="Table of operations.")
        self.follow(self._record, *choices)
        self.follow(self._draw, self._slider)
        self._record()

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows that can be stepped through."""
        return self._rows

    def _record(self) -> None:
        """Record what the controls choose and show all of it; of a model that failed, what ran until then."""
        with self.answering():
            try:
                ledger = self._ledger()
            except RecordingError as error:
                if error.rows:
                    self._show_all(error.rows)
                self.say(str(error))
            else:
                self._show_all(ledger.rows if self.backward else ledger.forward)

    def _show_all(self, rows: tuple[Row, ...]) -> None:
        self._rows = rows
        last = self._slider.max = len(rows)
        if self.row == last:
            self._draw()
        self.row = last

    def _ledger(self) -> Ledger:
        chosen = (self.network, self.device_type, self.dtype)
        if chosen not in self._ledgers:
            self.begin_work(f"Recording the operations of {self.network}")
            record = self._networks[self.network]
            self._ledgers[chosen] = record(device_type=self.device_type, dtype=self.dtype)
        return self._ledgers[chosen]

    def _draw(self) -> None:
        """Show the row, and say whose rules these are: where both agree, nothing else answers the choice."""
        said = describe(self._rows[: self.row], len(self._rows))
        whose = f"By the rules of {DEVICE_NAMES[self.device_type]}."
        caption = f"{said} {'No rules of autocast apply.' if self.dtype is None else whose}"
        self.show(ledger_picture(self._rows, self.row - 1), caption)


def describe(rows: tuple[Row, ...], total: int) -> str:
    """Describe the last of ``rows`` in a sentence, and what all of them add up to."""
    row, casts = rows[-1], [cast for each in rows for cast in each.casts]
    called = ", ".join(
        f"{count} {name}" for name, count in Counter(map(dtype_name, row.input_dtypes)).items()
    )
    result = dtype_name(row.output_dtype) if row.output_dtype else "no tensor"
    return (
        f"{len(rows)} of {total}, {_where(row)}: {row.op.removeprefix('aten::')} is called "
        f"with {called or 'no tensors'}; the result is {result}. Rule: {say_rule(row)}. "
        f"{_say_casts(row.casts)} So far: {len(casts)} casts, "
        f"{sum(cast.bytes for cast in casts):,} bytes of copies."
    )


def _where(row: Row) -> str:
    if row.phase == "backward":
        return f"backward of {row.module}" if row.module else "backward, in no submodule"
    return row.module or "in no submodule"


def _say_casts(casts: tuple[Cast, ...]) -> str:
    if not casts:
        return "No cast."
    said = ", ".join(
        f"{cast.parameter or 'a tensor'} {dtype_name(cast.source)} → {dtype_name(cast.target)}"
        for cast in casts
    )
    return f"Cast: {said}."


ROWS_IN_VIEW = 12
_WIDTH = 9.0  # inches
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
        figure = Figure(figsize=(_WIDTH, 0.29 * (len(window) + 1)))
        axes = sheet(figure, 1, len(window) + 1)
        for title, x in _COLUMNS.items():
            axes.text(x, 0.5, title, va="center", fontweight="bold", fontsize=9)
        axes.axhline(0.98, color=GRID)
        for line, row in enumerate(window, start=1):
            _draw_row(axes, line, row, first + line, ran=first + line <= current + 1)
            if first + line == current + 1:
                axes.axhspan(line + 0.03, line + 0.97, color=ACCENT, alpha=0.1, lw=0)
    return Picture(figure)


def say_rule(row: Row) -> str:
    """Name the rule that decided the dtype, in a composite one with the operation that it applied to."""
    return f"{row.rule} through {row.through.removeprefix('aten::')}" if row.through else row.rule


def _draw_row(axes: Axes, line: int, row: Row, number: int, ran: bool) -> None:
    y = line + 0.5
    colour = INK if ran else QUIET
    room = _WIDTH * (_COLUMNS["operation"] - _COLUMNS["module"] - 0.01)
    name = row.op.removeprefix("aten::")
    texts = {
        "": str(number),
        "module": end_that_fits(row.module or "(none)", room, SMALL),
        "operation": f"← {name}" if row.phase == "backward" else name,
    }
    for column, text in texts.items():
        axes.text(_COLUMNS[column], y, text, va="center", fontsize=SMALL, color=colour)
    if not ran:
        return
    axes.text(_COLUMNS["rule"], y, say_rule(row), va="center", fontsize=SMALL)
    for place, dtype in enumerate(row.input_dtypes[:_CHIPS_PER_CELL]):
        draw_chip(axes, _COLUMNS["called with"] + place * _CHIP_WIDTH + 0.02, y, dtype_name(dtype))
    if len(row.input_dtypes) > _CHIPS_PER_CELL:
        more = f"+{len(row.input_dtypes) - _CHIPS_PER_CELL}"
        x = _COLUMNS["called with"] + _CHIPS_PER_CELL * _CHIP_WIDTH - 0.006
        axes.text(x, y, more, va="center", fontsize=SMALL, color=QUIET)
    _draw_casts(axes, _COLUMNS["casts"], y, row)
    if row.output_dtype is not None:
        draw_chip(axes, _COLUMNS["result"] + 0.02, y, dtype_name(row.output_dtype))


def _draw_casts(axes: Axes, x: float, y: float, row: Row) -> None:
    """Draw how many casts there were from one dtype to another; all casts of a row go the same way."""
    kinds = Counter((dtype_name(cast.source), dtype_name(cast.target)) for cast in row.casts)
    for (source, target), count in list(kinds.items())[:1]:
        axes.text(x, y, f"{count} ×", va="center", fontsize=SMALL)
        draw_chip(axes, x + 0.047, y, source)
        axes.text(x + 0.027 + _CHIP_WIDTH - 0.004, y, "→", va="center", ha="center", fontsize=9)
        draw_chip(axes, x + 0.053 + _CHIP_WIDTH, y, target)
