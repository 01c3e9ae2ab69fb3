"""Tables that read well in a terminal, on GitHub and in JupyterLab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from amp_lessons._base.text import prose

_Row = tuple[str, ...]

# Where the table is wider than the page, the arrow keys scroll it.
_REGION = Markup(
    '<div tabindex="0" role="region" aria-label="{}" style="overflow-x:auto;white-space:nowrap">{}</div>'
)
_HEADING = Markup('<th scope="col">{}</th>').format
_CELL = Markup("<td>{}</td>").format
_PARAGRAPH = Markup("<p>{}</p>").format


class Shown:
    """What shows itself as text, markdown and HTML, in notebooks too.

    Whoever is one says so by ``__str__``, ``as_markdown`` and ``as_html``; a dataclass needs ``repr=False``.
    """

    def as_markdown(self) -> str:
        """Render for GitHub, and for notebooks without HTML."""
        raise NotImplementedError

    def as_html(self) -> Markup:
        """Render for a notebook."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return str(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": str(self), "text/markdown": self.as_markdown(), "text/html": self.as_html()}


class Table(Shown):
    """Rows of words under a head, with a caption above and notes below; the first column names the row.

    What stands between backticks is code. A cell that is ``markupsafe.Markup`` stands in HTML as it is.
    """

    def __init__(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[object]],
        caption: str = "",
        notes: Iterable[str] = (),
    ) -> None:
        """Keep ``rows``, each as long as ``head``; cells other than strings are put into words by str."""
        self.head = tuple(head)
        self.rows = [tuple(cell if isinstance(cell, str) else str(cell) for cell in row) for row in rows]
        self.caption = caption
        self.notes = tuple(notes)
        for row in self.rows:
            if len(row) != len(self.head):
                raise ValueError(f"The head has {len(self.head)} cells, but a row has {len(row)}: {row}.")

    @classmethod
    def of(cls, records: Iterable[Mapping[str, object]], caption: str = "") -> Table:
        """Make a table of ``records``, at least one; all have the headings of the first as keys."""
        records = list(records)
        if not records:
            raise ValueError("A table needs at least one row, which says what its headings are.")
        head = tuple(records[0])
        return cls(head, [[record[heading] for heading in head] for record in records], caption)

    @property
    def records(self) -> list[dict[str, str]]:
        """The rows, each from heading to cell."""
        return [dict(zip(self.head, row, strict=True)) for row in self.rows]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [_aligned(row, widths) for row in (self.head, *self.rows)]
        caption = [self.caption] if self.caption else []
        notes = ["", *self.notes] if self.notes else []
        return "\n".join([*caption, *lines, *notes])

    def as_markdown(self) -> str:
        """Render a GitHub table between its caption and its notes."""
        caption = [f"**{prose.as_markdown(self.caption)}**"] if self.caption else []
        rule = "|:--" + "|--:" * (len(self.head) - 1) + "|"
        table = "\n".join([_markdown(self.head), rule, *map(_markdown, self.rows)])
        return "\n\n".join([*caption, table, *map(prose.as_markdown, self.notes)])

    def as_html(self) -> Markup:
        """Render caption, table and notes, one row a line, so that a line can be told from its neighbours."""
        lines = [
            Markup("<table>"),
            Markup('<caption style="text-align:left">{}</caption>').format(prose.as_html(self.caption)),
            Markup("<thead><tr>{}</tr></thead>").format(_joined(map(_HEADING, map(_html, self.head)))),
            Markup("<tbody>"),
            *map(_html_row, self.rows),
            Markup("</tbody></table>"),
        ]
        # A region needs a name, and another one than its neighbours'.
        table = _REGION.format(self.caption or ", ".join(self.head), Markup("\n").join(lines))
        return Markup("\n").join([table, *(_PARAGRAPH(prose.as_html(note)) for note in self.notes)])


class ShownAsTable:
    """What shows itself as the table that its ``_table()`` makes."""

    def _table(self) -> Table:
        raise NotImplementedError

    def __str__(self) -> str:
        return str(self._table())

    __repr__ = __str__

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self._table()._repr_mimebundle_()


def _aligned(row: _Row, widths: Sequence[int]) -> str:
    """Align the first column to the left and the others to the right."""
    name, *others = row
    cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
    return "  ".join([name.ljust(widths[0]), *cells]).rstrip()


def _markdown(row: _Row) -> str:
    return "| " + " | ".join(prose.as_markdown(cell).replace("|", "\\|") for cell in row) + " |"


def _html_row(row: _Row) -> Markup:
    name, *others = map(_html, row)
    return Markup('<tr><th scope="row">{}</th>{}</tr>').format(name, _joined(map(_CELL, others)))


def _html(cell: str) -> Markup:
    return cell if isinstance(cell, Markup) else prose.as_html(cell)


def _joined(pieces: Iterable[Markup]) -> Markup:
    return Markup("").join(pieces)
