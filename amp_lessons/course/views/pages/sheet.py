"""The whiteboard sheet on one page: HTML, and a PDF.

matplotlib writes the PDF. It is there anyway, needs no browser on the learner's machine, and leaves the text
as text, to be searched and copied.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.figure import Figure

from amp_lessons._base.text.page import whole_page
from amp_lessons._base.text.tables import Table
from amp_lessons.course.interview import Sheet
from amp_lessons.course.interview.whiteboard import says_words

_STYLE = Path(__file__).with_name("sheet.css")
_TITLE = "Mixed precision on a whiteboard"
_A4 = (11.69, 8.27)  # inches, landscape
_MARGIN = 0.04  # of the page
_TOP = 0.9
_POINTS = 7.6
_LINE = 1.55  # of the size of the letters


def sheet_page(sheet: Sheet) -> str:
    """Return the sheet as a whole HTML page, which prints on one side of A4."""
    tables = Markup('<div class="tables">\n{}\n</div>').format(sheet.as_html())
    return whole_page(_TITLE, tables, _STYLE)


def sheet_pdf(sheet: Sheet) -> bytes:
    """Return the sheet as a PDF of one page; ``Path("sheet.pdf").write_bytes(...)`` writes it."""
    buffer = io.BytesIO()
    with rc_context({"pdf.fonttype": 42}):  # text stays text
        figure = sheet_figure(sheet)
        FigureCanvasPdf(figure).print_pdf(buffer, metadata={"Title": _TITLE, "CreationDate": None})
    return buffer.getvalue()


def sheet_figure(sheet: Sheet) -> Figure:
    """Lay the tables out in two columns."""
    figure = Figure(figsize=_A4)
    figure.text(_MARGIN, 1 - _MARGIN, _TITLE, size=14, weight="bold", va="top")
    heights = [_height(len(_lines(table)) + 3.2) for table in sheet.tables]
    # both columns end as high as they can
    half = min(range(len(heights)), key=lambda i: max(sum(heights[:i]), sum(heights[i:])))
    for left, tables in ((_MARGIN, sheet.tables[:half]), (0.5 + _MARGIN / 2, sheet.tables[half:])):
        _draw(figure, left, tables)
    return figure


def _draw(figure: Figure, left: float, tables: Sequence[Table]) -> None:
    top = _TOP
    for table in tables:
        lines = _lines(table)
        figure.text(left, top, table.caption, size=_POINTS + 1.5, weight="bold", va="top")
        top -= 1.6 * _height(1)
        body = "\n".join(lines)
        figure.text(left, top, body, size=_POINTS, family="monospace", va="top", linespacing=_LINE)
        top -= _height(len(lines) + 1.6)


def _lines(table: Table) -> list[str]:
    """Return the table's lines below its caption: words begin at the left, as on the page."""
    if not says_words(table):
        return str(table).splitlines()[1:]
    rows = (table.head, *table.rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return [*map("  ".join, cells), *table.notes]


def _height(lines: float) -> float:
    """Return the height of so many lines, as a part of the page's."""
    return lines * _POINTS * _LINE / 72 / _A4[1]
