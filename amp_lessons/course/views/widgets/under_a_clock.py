"""Interviews under a clock: how they begin and end, and how their report is kept."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

import ipywidgets
from markupsafe import Markup

from amp_lessons._base import files
from amp_lessons._base.drawing.picture import CAPTION_STYLE
from amp_lessons.course.interview.reporting import ToldInSections
from amp_lessons.course.views.base.controls import AreYouSure, Countdown, button, row
from amp_lessons.course.views.base.html import live_region, paragraphs
from amp_lessons.course.views.base.shown import Shown
from amp_lessons.course.views.pages.interview import report_page


class Timed(Protocol):
    """An interview that has begun."""

    @property
    def left_s(self) -> float:
        """How many seconds are left."""


class UnderAClock(Shown):
    """A view that begins with Start and ends with a report; a command of the course does the same."""

    def __init__(
        self,
        choices: Sequence[ipywidgets.Widget],
        work: Sequence[ipywidgets.Widget],
        *,
        end: tuple[str, str],
        over: str,
    ) -> None:
        """Lay out ``choices`` beside Start, and below them ``work``.

        ``end`` is what stands on the button that ends it, and what is asked before; ``over`` is what the
        clock says when no time is left. Before a report goes away, Start asks: whoever wrote in a cell may
        press a key too many.
        """
        self._anew = AreYouSure("The report below goes away.", "Begin anew", "Keep it", self.begin)
        self._begin = button("Start", "start the clock", self._start)
        self._end = button(end[0], "show the report", lambda: self._sure.ask(self._end))
        self._sure = AreYouSure(end[1], "Yes", "Go on", self.end)
        self._countdown = Countdown(lambda: max(0.0, self._begun.left_s) if self._begun else 0.0, over)
        self._said = ipywidgets.HTML(live_region(paragraphs([self._what()])))
        self._file = ReportFile(lambda: self.report)
        self._end.disabled = True
        above = [row(*choices, self._begin, self._end), self._sure, self._anew, self._countdown, self._said]
        super().__init__([*above, *work, self._file], layout={"max_width": "900px"})

    @property
    @abstractmethod
    def _begun(self) -> Timed | None:
        """What a new beginning would replace, if there is anything."""

    @property
    @abstractmethod
    def report(self) -> ToldInSections:
        """How it went, so far. Raises ValueError before it has begun."""

    @abstractmethod
    def begin(self) -> None:
        """Begin, as the button does."""

    @abstractmethod
    def end(self) -> None:
        """End it here, as the button does once it is sure."""

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

    def stored(self) -> dict[str, str]:
        """Return the same as text and markdown."""
        said, command = f"{self._what()} In a terminal:", self._command()
        return {"text/plain": f"{said} {command}", "text/markdown": f"{said} `{command}`"}

    def _start(self) -> None:
        if self._begun:
            self._anew.ask(self._begin)
        else:
            self.begin()

    def _run_clock(self, running: bool) -> None:
        """Let the clock run, or stop it and offer the report."""
        self._begin.disabled, self._end.disabled = running, not running
        self._file.show(not running)
        if running:
            self._countdown.start()
        else:
            self._countdown.stop()
            self._sure.hide()


class ReportFile(ipywidgets.VBox):
    """A button that saves a report, hidden until there is one, and where it was saved."""

    def __init__(self, report: Callable[[], ToldInSections]) -> None:
        """Save what ``report`` returns."""
        self._report = report
        self._said = ipywidgets.HTML()
        hint = "write it into this folder, as a page for a browser"
        save = button("Save the report to print it", hint, self._press)
        super().__init__([save, self._said], layout={"display": "none"})

    def save(self, path: str | Path) -> Path:
        """Write the report to a file, and return where that is. Raises OSError where it cannot be written."""
        files.replace(Path(path), report_page(self._report()))
        return Path(path).absolute()

    def show(self, shown: bool) -> None:
        """Offer it, or put it away."""
        self.layout.display = "" if shown else "none"
        self._said.value = ""

    def _press(self) -> None:
        """Save it under a name that no earlier report has."""
        name = f"interview-{datetime.now():%Y-%m-%d-%H%M%S}.html"
        try:
            said = f"Saved: {self.save(name)}"
        except OSError as error:
            said = f"It cannot be saved: {files.why_unwritable(error, Path(name))}"
        self._said.value = live_region(paragraphs([said]))
