"""A lesson cut down to what a browser test drives: its text, its widgets, and the cells that these need.

Every cell of every lesson is run by nbval; running all of them again in a browser would only cost minutes.
"""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

WIDGET = re.compile(r"\bviews\.([A-Z]|check\b)")  # views.curves, say, is a picture: nothing in it moves


@dataclass(frozen=True)
class Names:
    """What a cell reads and binds of the notebook's own names, in its functions too."""

    read: frozenset[str]
    bound: frozenset[str]


def only_what_is_seen(notebook: NotebookNode) -> NotebookNode:
    """Drop the code cells that show no widget and bind nothing that one needs; return the same notebook."""
    needed: set[str] = set()
    kept = []
    for cell in reversed(notebook.cells):
        if cell.cell_type == "code":
            names = names_of(cell.source)
            if not WIDGET.search(cell.source) and not names.bound & needed:
                continue
            needed |= names.read
        kept.append(cell)
    notebook.cells = kept[::-1]
    return notebook


def names_of(source: str) -> Names:
    """Return the names of the notebook's own level that a cell reads and binds."""
    symbols = list(_symbols(symtable.symtable(source, "cell", "exec")))
    return Names(
        frozenset(symbol.get_name() for symbol in symbols if symbol.is_referenced()),
        frozenset(symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()),
    )


def _symbols(table: symtable.SymbolTable) -> Iterator[symtable.Symbol]:
    for symbol in table.get_symbols():
        if table.get_type() == "module" or symbol.is_global():
            yield symbol
    for inner in table.get_children():
        yield from _symbols(inner)
