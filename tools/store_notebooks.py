"""Run notebooks and store what they show: ``python tools/store_notebooks.py notebooks/*.ipynb``.

A notebook is its own source; this only renews its outputs. What would differ between two runs or two machines
is left out: time stamps, the kernel's version, widget state (GitHub shows an error for it) and references to
live widgets. In their place a reader without a kernel sees the picture that every view carries along.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from PIL import Image

from amp_lessons import exercises
from amp_lessons._base.drawing.picture import DPI, LEGIBLE_PX
from amp_lessons._base.drawing.style import SMALL
from amp_lessons.course.exercises.exercise import cell_id

CELL_TIMEOUT_S = 120
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
NOTEBOOK_METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
FOLDED = "jp-MarkdownHeadingCollapsed"  # of a heading in JupyterLab
CELL_METADATA = {"tags", "jupyter", "slideshow", "editable", "deletable", FOLDED}


def main(paths: list[str]) -> int:
    """Store every notebook; 1 if a cell raised in one of them, and that one stays as it was."""
    failed = [path for path in paths if not store(Path(path))]
    for path in failed:
        print(f"{path} was not stored", file=sys.stderr)
    return int(bool(failed))


def store(path: Path) -> bool:
    """Run one notebook in its folder and write it back; False if a cell raised."""
    notebook = with_stubs(tidy(nbformat.v4.reads(path.read_text(encoding="utf-8"))))
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
        coalesce_streams=True,
    )
    with tempfile.TemporaryDirectory() as home:  # not the progress of whoever runs this
        try:
            client.execute(env={**os.environ, "AMP_LESSONS_HOME": home, "TQDM_DISABLE": "1"})
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            return False
    notebook.metadata = nbformat.from_dict(NOTEBOOK_METADATA)
    for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
        slim(output.get("data", {}))
        if "image/png" in output.get("data", {}):
            output.metadata["image/png"] = legible(output.data["image/png"])
    nbformat.write(notebook, path)
    print(f"{path}: {len(notebook.cells)} cells, {path.stat().st_size / 1024:.0f} KiB")
    return True


def tidy(notebook: NotebookNode) -> NotebookNode:
    """Give every cell an id and drop the metadata that editors leave behind; return the same notebook.

    An id that is there is kept. One that is missing follows from the cell; nbformat would draw it at random.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell.setdefault("id", hashlib.sha256(f"{number}:{cell.source}".encode()).hexdigest()[:8])
        for key in set(cell.metadata) - CELL_METADATA:
            del cell.metadata[key]
    return notebook


def with_stubs(notebook: NotebookNode) -> NotebookNode:
    """Write each exercise's stub, as its folder has it, into its cell; return the same notebook."""
    stubs = {cell_id(each.id, "stub"): each.stub.rstrip("\n") for each in exercises.catalog()}
    for cell in notebook.cells:
        cell.source = stubs.get(cell.id, cell.source)
    return notebook


def slim(data: NotebookNode) -> None:
    """Drop the reference to a live widget where something else stands beside it; pack the picture well."""
    if len(data) > 1:
        data.pop(WIDGET_VIEW, None)
    if "image/png" in data:
        data["image/png"] = smaller_png(data["image/png"])


def legible(encoded: str) -> dict[str, int | bool]:
    """Say how wide JupyterLab shall show a base64 PNG so that its smallest type has 11 pixels: not narrower.

    Where a page has less room the picture is moved sideways, as that of a view with a kernel is.
    """
    width_px, _ = Image.open(io.BytesIO(base64.b64decode(encoded))).size
    return {"unconfined": True, "width": math.ceil(width_px / DPI * 72 * LEGIBLE_PX / SMALL)}


def smaller_png(encoded: str) -> str:
    """Pack a base64 PNG again, pixel for pixel the same, and return whichever is shorter."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(encoded))).save(packed, "PNG", optimize=True)
    return min(encoded, base64.b64encode(packed.getvalue()).decode(), key=len)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
