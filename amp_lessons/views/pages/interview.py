"""The report of a mock interview as one HTML file that prints well."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from amp_lessons.interview import MockReport

_STYLE = Path(__file__).with_name("interview.css")
_PAGE = Markup(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Mock interview</title>
<style>
{style}</style>
</head>
<body>
<main>
<h1>Mock interview</h1>
{report}
</main>
</body>
</html>
"""
)


def report_page(report: MockReport) -> str:
    """Return a whole HTML page of the report of a mock interview. Raises TypeError for anything else.

    ``Path("interview.html").write_text(views.report_page(mock.report), "utf-8")`` writes it.
    """
    if not isinstance(report, MockReport):
        raise TypeError(f"the report of a mock interview can be shown, not {type(report).__name__}")
    return _PAGE.format(style=Markup(_STYLE.read_text("utf-8")), report=report.as_html("h2"))
