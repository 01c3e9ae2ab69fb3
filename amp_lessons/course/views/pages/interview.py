"""The report of an interview as one HTML file that prints well."""

from __future__ import annotations

from pathlib import Path

from amp_lessons._base.text.page import whole_page
from amp_lessons.course.interview.reporting import ToldInSections

_STYLE = Path(__file__).with_name("interview.css")


def report_page(report: ToldInSections) -> str:
    """Return a whole HTML page of the report of an interview or a round; TypeError for anything else.

    ``view.save("interview.html")`` writes it, where ``view`` shows that interview.
    """
    if not isinstance(report, ToldInSections):
        raise TypeError(f"the report of an interview or a round can be shown, not {type(report).__name__}")
    return whole_page(report.title, report.as_html("h2") + report.appendix("h2"), _STYLE)
