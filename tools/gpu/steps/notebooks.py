"""Every notebook, run from top to bottom: which cells raise, how long it takes, what was measured."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from amp_lessons.text.marks import COMPUTED_MARK, MEASURED_MARK
from tools.gpu.found import Agreement, Figure, Found, Place, needed
from tools.gpu.process import ROOT, environment

CELL_TIMEOUT_S = 240
LONGEST_MESSAGE = 200
NEEDED = ("nbformat", "nbclient", "ipykernel", "ipywidgets", "anywidget", "matplotlib", "sklearn", "pygments")
MARKS = (MEASURED_MARK, COMPUTED_MARK)
_REASON = "a cell raises or does not"


def parts(place: Place, root: Path = ROOT) -> tuple[str, ...]:
    """Name the notebooks."""
    needed(*NEEDED)
    return tuple(str(path.relative_to(root)) for path in sorted((root / "notebooks").glob("*.ipynb")))


def run(name: str, place: Place, root: Path = ROOT) -> Found:
    """Run one in its folder, to its end even where cells raise; the file stays as it is."""
    import nbformat
    from nbclient import NotebookClient

    path = root / name
    notebook = nbformat.read(path, 4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        interrupt_on_timeout=True,
        kernel_name="python3",
        resources=resources,
        allow_errors=True,
    )
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as home:  # not the progress of whoever runs this
        client.execute(env={**environment(), "AMP_LESSONS_HOME": home})
    return found_in(notebook, name, time.monotonic() - start)


def found_in(notebook: Any, name: str, seconds: float) -> Found:
    """Read errors and marked lines from a notebook that took so long to run."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [(number, output) for number, cell in enumerate(cells, 1) for output in cell.outputs]
    errors = [
        f"cell {number} raised {output.ename}: {output.evalue}"[:LONGEST_MESSAGE]
        for number, output in outputs
        if output.output_type == "error"
    ]
    figures = Figure("cells run", len(cells)), Figure("took", seconds, "s")
    agreement = Agreement(f"`{name}`", "no cell raises", "; ".join(errors) or "no cell raises", _REASON)
    lines = [line for _, output in outputs for line in _text(output).splitlines() if line.startswith(MARKS)]
    return Found(figures, (agreement,), tuple(lines))


def _text(output: Any) -> str:
    """Return the plain text of an output, printed or shown."""
    return output.get("text") or output.get("data", {}).get("text/plain", "")
