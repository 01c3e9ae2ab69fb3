"""Curves of training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_lessons.text.marks import MEASURED_MARK
from amp_lessons.views.base.still import Still
from amp_lessons.views.figures.curves import curves_picture


def curves(
    runs: Mapping[str, Sequence[float]],
    caption: str,
    *,
    xlabel: str = "training step",
    ylabel: str = "loss",
    log: bool = False,
    measured: bool = True,
) -> Still:
    """Show one curve per run: ``runs`` maps a run's name to its value at every step."""
    picture = curves_picture(runs, xlabel, ylabel, log)
    alt = f"Curves of {ylabel} over {xlabel}: {', '.join(runs)}."
    return Still(picture, caption, alt, mark=MEASURED_MARK if measured else "")
