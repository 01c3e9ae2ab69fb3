"""A report saved as a page to print: one press, whatever the view that shows it is called."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import ipywidgets
from markupsafe import Markup

from amp_lessons._base import files
from amp_lessons.course.interview.reporting import ToldInSections
from amp_lessons.course.views.base.controls import button
from amp_lessons.course.views.pages.interview import report_page
from amp_lessons.course.views.widgets.rubric import told


class ReportFile(ipywidgets.VBox):
    """A button that saves a report, hidden until there is one, and where it was saved."""

    def __init__(self, report: Callable[[], ToldInSections]) -> None:
        """Save what ``report`` returns."""
        self._report = report
        self._said = ipywidgets.HTML()
        save = button("Save the report to print it", "write it into this folder, as a page for a browser")
        save.on_click(lambda _: self._press())
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
        self._said.value = told(Markup("<p>{}</p>").format(said))
