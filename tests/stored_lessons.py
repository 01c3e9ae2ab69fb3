"""The cells of a lesson as it is stored, by their ids."""

from __future__ import annotations

import json
from typing import Any

from amp_lessons.course.lessons import originals
from amp_lessons.course.lessons.shipped import numbered, source


def cells(number: str) -> dict[str, dict[str, Any]]:
    """Return the cells of one lesson."""
    notebook = json.loads(numbered(originals(), number).read_text("utf-8"))
    return {cell["id"]: cell for cell in notebook["cells"]}


def text(number: str, cell_id: str) -> str:
    """Return the source of one cell."""
    return source(cells(number)[cell_id])


def printed(number: str, cell_id: str) -> str:
    """Return what a cell with one output printed."""
    (output,) = cells(number)[cell_id]["outputs"]
    return "".join(output["text"])
