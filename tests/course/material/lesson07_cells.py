"""Lesson 07's own cells, run outside the notebook: what a test trains is what a learner trains."""

from __future__ import annotations

import json
from typing import Any

from tests.notebook_rules import code_cells, source
from tests.test_packaging import ROOT

CELLS = {
    cell["id"]: source(cell)
    for cell in code_cells(json.loads((ROOT / "notebooks" / "07_real_models.ipynb").read_text("utf-8")))
}
IMPORTS = ("weights-run", "weights-have")


def names_of(*ids: str) -> dict[str, Any]:
    """Run the imports and these cells; return the names that they leave."""
    names: dict[str, Any] = {"pretrained": __import__("amp_lessons").pretrained}
    for each in (*IMPORTS, *ids):
        exec(compile(CELLS[each], each, "exec"), names)
    return names
