"""Tables that read well in JupyterLab, on GitHub and in a terminal."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

from amp_lessons.formats import FORMATS, FloatFormat
from amp_lessons.text.words import power_of_two


class Table:
    """Rows of words under common headings, with a caption; the first column names the row."""

    def __init__(self, rows: Sequence[Mapping[str, object]], caption: str) -> None:
        """Keep `rows`, which map the same headings, in the same order, to what stands below them."""
        if not rows:
            raise ValueError("A table needs at least one row.")
        self.rows = [{heading: str(cell) for heading, cell in row.items()} for row in rows]
        self.caption = caption

    def __repr__(self) -> str:
        lines = [list(self.rows[0]), *(list(row.values()) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, *others = ("  ".join(_padded(line, widths)) for line in lines)
        return "\n".join([self.caption, first, *others])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._html()}

    def _html(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in self.rows[0])
        body = "".join(f"<tr>{_cells(list(row.values()))}</tr>" for row in self.rows)
        caption = f'<caption style="text-align:left">{html.escape(self.caption)}</caption>'
        table = f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        # Where the table is wider than the page, the arrow keys scroll it
        region = f'tabindex="0" role="region" aria-label="{html.escape(self.caption)}"'
        return f'<div {region} style="overflow-x:auto;white-space:nowrap">{table}</div>'


def _padded(line: list[str], widths: list[int]) -> list[str]:
    name, *others = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
    return [name.strip().ljust(widths[0]), *others]


def _cells(cells: list[str]) -> str:
    name, *others = map(html.escape, cells)
    return f'<th scope="row">{name}</th>' + "".join(f"<td>{cell}</td>" for cell in others)


def format_table(names: Sequence[str] = tuple(FORMATS)) -> Table:
    """Return what follows from the bit counts of each format: range, precision and number of values."""
    return Table(
        [_row(FORMATS[name]) for name in names],
        "Computed from the bits, bias and special patterns of each format. "
        "s/e/m: bits of sign, exponent, mantissa.",
    )


def _row(each: FloatFormat) -> dict[str, object]:
    smallest = each.smallest_subnormal
    return {
        "format": each.name,
        "bits": each.bits,
        "s/e/m": f"{int(each.signed)}/{each.exponent_bits}/{each.mantissa_bits}",
        "largest": f"{each.max:.5g}",
        "smallest normal": power_of_two(each.smallest_normal),
        "smallest": power_of_two(smallest) if smallest else "—",
        "epsilon": power_of_two(each.epsilon),
        "digits": f"{each.decimal_digits:.2f}",
        "binades": math.frexp(each.max)[1] - math.frexp(each.smallest_normal)[1] + 1,
        "finite values": f"{each.finite_value_count:,}",
        "inf, nan": "both" if each.has_infinity else "nan" if each.has_nan else "none",
    }
