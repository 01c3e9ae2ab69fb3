"""A round of system design in a notebook: constraints in stages, and all model answers after the last."""

from __future__ import annotations

import time
from collections.abc import Callable

from amp_lessons.course import interview
from amp_lessons.course.interview.bank import design
from amp_lessons.course.interview.mock import Interview
from amp_lessons.course.views.base.controls import dropdown
from amp_lessons.course.views.widgets.mock import InterviewRoom


class DesignRound(InterviewRoom):
    """Choose what to design, begin, and answer; whatever ends it, ``report`` says how it went."""

    def __init__(self, design_id: str = "pretrain", *, clock: Callable[[], float] = time.monotonic) -> None:
        """Offer a round, whose clock begins with Start. Raises KeyError for an unknown design."""
        chosen = design(design_id).id
        self._design = dropdown("design", [(each.title, each.id) for each in interview.DESIGNS], chosen)
        super().__init__([self._design], clock)

    def _begun(self) -> Interview:
        return interview.DesignRound(self._design.value, self._clock)

    def _what(self) -> str:
        minutes = design(self._design.value).minutes
        return (
            f"A round of system design, {minutes} minutes: each stage brings a constraint, and you tick what "
            "you said of what a good answer covers. The model answers come after the last stage."
        )

    def _command(self) -> str:
        return f"amp-lessons interview design {self._design.value}"
