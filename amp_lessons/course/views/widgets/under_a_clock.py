"""Interviews under a clock: how they begin, how their report is kept, and how to have them in a terminal."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from markupsafe import Markup

from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons.course.interview.reporting import ToldInSections
from amp_lessons.course.views.base.controls import AreYouSure, button
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.widgets.report_file import ReportFile


class UnderAClock(Shown):
    """A view that begins with Start and ends with a report; a command of the course does the same."""

    def _offer_start(self) -> None:
        """Make the button that begins it, and what saves its report.

        Before a report goes away, Start asks: whoever wrote in a cell may press a key too many.
        """
        self._anew = AreYouSure("The report below goes away.", "Begin anew", "Keep it", self.begin)
        self._begin = button("Start", "start the clock")
        self._begin.on_click(lambda _: self._anew.ask(self._begin) if self._has_begun else self.begin())
        self._file = ReportFile(lambda: self.report)

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether there is something that a new beginning would replace."""

    @property
    @abstractmethod
    def report(self) -> ToldInSections:
        """How it went, so far. Raises ValueError before it has begun."""

    @abstractmethod
    def begin(self) -> None:
        """Begin, as the button does."""

    def save(self, path: str | Path) -> Path:
        """Write the report as a page to print, and return where it is. Raises ValueError, OSError."""
        return self._file.save(path)

    @abstractmethod
    def _what(self) -> str:
        """Say in two sentences what this is."""

    @abstractmethod
    def _command(self) -> str:
        """Return the command that leads the same in a terminal."""

    def stand_in(self) -> Markup:
        """Return what it is, and how to have it in a terminal."""
        return Markup('<p style="{}">{} In a terminal: <code>{}</code></p>').format(
            CAPTION_STYLE, self._what(), self._command()
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle = super()._repr_mimebundle_(**kwargs)
        bundle["text/plain"] = f"{self._what()} In a terminal: {self._command()}"
        bundle["text/markdown"] = f"{self._what()} In a terminal: `{self._command()}`"
        return bundle
