"""Pictures that need no controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from amp_lessons.text.marks import MEASURED
from amp_lessons.views.base.picture import Picture
from amp_lessons.views.base.view import View
from amp_lessons.views.figures.curves import curves_picture


class Still(View):
    """A picture with its caption, shown as every other view is, without anything to press."""

    def __init__(self, picture: Picture, caption: str, alt: str, *, mark: str = "") -> None:
        """Show ``picture``; ``alt`` says in a phrase what it is of."""
        super().__init__([], alt)
        self.show(picture, caption, mark=mark)


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
    return Still(picture, caption, alt, mark=MEASURED if measured else "")
