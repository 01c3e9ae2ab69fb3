"""Training runs, side by side, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.text.tables import Table
from amp_lessons.text.words import memory

if TYPE_CHECKING:
    from amp_lessons.training import History


def table(runs: Mapping[str, History], caption: str = "", notes: Iterable[str] = ()) -> Table:
    """Return loss and accuracy of every epoch, with columns for each of ``runs``, which are given by name."""
    columns = {"epoch": [str(i + 1) for i in range(len(next(iter(runs.values())).epochs))]}
    for name, history in runs.items():
        columns[f"{name} loss"] = [f"{loss:.3f}" for loss in history.losses]
        if None not in history.accuracies:
            columns[f"{name} accuracy"] = [f"{accuracy:.1%}" for accuracy in history.accuracies]
    return Table(tuple(columns), zip(*columns.values(), strict=True), caption, notes)


def comparison(runs: Mapping[str, History]) -> Table:
    """Return the same of runs that began alike, and what each of them cost on this machine."""
    caption = "Mean loss and accuracy of each epoch: same initial weights, same batches"
    return table(
        runs, caption, [f"{MEASURED_MARK} {name}: {_cost(history)}" for name, history in runs.items()]
    )


def _cost(history: History) -> str:
    peak = "" if history.peak_mib is None else f", peak {memory(round(history.peak_mib * 2**20))}"
    return f"{history.seconds:.2f} s on {history.device}{peak}, {history.skipped_steps} steps skipped"
