"""The report of a mock interview as one HTML file that prints well."""

from __future__ import annotations

from pathlib import Path

from amp_lessons.interview import MockReport
from amp_lessons.text.page import whole_page

_STYLE = Path(__file__).with_name("interview.css")


def report_page(report: MockReport) -> str:
    """Return a whole HTML page of the report of a mock interview. Raises TypeError for anything else.

    ``Path("interview.html").write_text(views.report_page(mock.report), "utf-8")`` writes it.
    """
    if not isinstance(report, MockReport):
        raise TypeError(f"the report of a mock interview can be shown, not {type(report).__name__}")
    return whole_page("Mock interview", report.as_html("h2"), _STYLE)
