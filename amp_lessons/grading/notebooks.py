"""A learner's notebook, read as data: its cells, and what each of them defines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_MAGIC = re.compile(r"^(\s*)[%!?].*$|^(\s*)\S.*\?$", re.MULTILINE)


class UnreadableNotebookError(ValueError):
    """The file is no notebook."""


@dataclass(frozen=True)
class Cell:
    """A cell of code: its id ("" where it has none), its source, and what stands below it as text."""

    id: str
    source: str
    shown: str

    @property
    def statements(self) -> list[ast.stmt]:
        """What the cell does, statement by statement; nothing of a cell that is not Python."""
        try:
            return ast.parse(self.code).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []

    @property
    def is_python(self) -> bool:
        """Whether it can be parsed."""
        try:
            ast.parse(self.code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True

    @property
    def code(self) -> str:
        """The source, with nothing in place of what is IPython's and not Python's."""
        if self.source.lstrip().startswith("%%"):
            return ""
        try:
            ast.parse(self.source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return _MAGIC.sub(lambda found: (found[1] or found[2] or "") + "pass", self.source)
        return self.source


def cells_of(text: str) -> list[Cell]:
    """Return the cells of code. Raises UnreadableNotebookError for what is no notebook."""
    try:
        return list(_cells(json.loads(text)))
    except (ValueError, RecursionError, TypeError, AttributeError, KeyError) as error:
        raise UnreadableNotebookError(f"this is no notebook: {error}"[:200]) from error


def _cells(notebook: dict[str, Any]) -> Iterator[Cell]:
    for cell in notebook["cells"]:
        if cell.get("cell_type") == "code":
            shown = "\n".join(map(_text_of, cell.get("outputs", [])))
            yield Cell(str(cell.get("id", "")), _joined(cell.get("source", "")), shown)


def _text_of(output: dict[str, Any]) -> str:
    data = output.get("data", {})
    return _joined(data.get("text/plain", "")) or _joined(output.get("text", ""))


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text)
