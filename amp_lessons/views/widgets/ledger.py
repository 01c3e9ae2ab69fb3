"""The ledger of a network, row by row: which operation ran in which dtype, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import torch

from amp_lessons.autocast import Cast, Ledger, RecordingError, Row
from amp_lessons.formats.dtypes import dtype_name
from amp_lessons.precisions import HALVES
from amp_lessons.views.base.controls import ControlValue, Slider, dropdown, row
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.atlas import DEVICE_NAMES
from amp_lessons.views.figures.ledger import ledger_picture, say_rule

Recorder = Callable[..., Ledger]
DTYPES = [*HALVES.items(), ("fp32, no autocast", None)]
PASSES = [("forward", False), ("forward and backward", True)]


class LedgerView(View):
    """Step through the operations of real networks, by the rules and in the dtype that are chosen."""

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
        for choice in choices:
            choice.observe(lambda _: self._record(), "value")
        self._slider.observe(lambda _: self._draw(), "value")
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
        rows = self._rows[: self.row]
        self.show(ledger_picture(self._rows, self.row - 1), describe(rows, len(self._rows)))


def describe(rows: tuple[Row, ...], total: int) -> str:
    """Say the last of ``rows`` in a sentence, and what all of them add up to."""
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
