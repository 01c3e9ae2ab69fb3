"""Small tables as text, markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[str]


def as_text(head: Row, rows: Sequence[Row]) -> str:
    """Render aligned columns, the first to the left and the others to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join(_aligned(row, widths) for row in [head, *rows])


def _aligned(row: Row, widths: list[int]) -> str:
    first, *others = row
    cells = [f"{first:<{widths[0]}}", *(f"{cell:>{w}}" for cell, w in zip(others, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()


def as_markdown(head: Row, rows: Sequence[Row]) -> str:
    """Render a GitHub table."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in [head, *rows]]
    return "\n".join([lines[0], "|:--" + "|--:" * (len(head) - 1) + "|", *lines[1:]])


def as_html(head: Row, rows: Sequence[Row], caption: str) -> str:
    """Render a table with a caption, one row a line, so that a line can be told from its neighbours."""
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows]
    return "\n".join(
        [f"<table><caption>{escape(caption)}</caption>", f"<tr>{heads}</tr>", *lines, "</table>"]
    )
