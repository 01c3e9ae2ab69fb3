from __future__ import annotations

import base64
import io
import json

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image

from amp_lessons._base.drawing.picture import DPI
from amp_lessons._base.drawing.style import SMALL
from tools import store_notebooks

pytestmark = pytest.mark.slow

SLIDER = "import ipywidgets\nipywidgets.IntSlider(3, description='scale')"
PICTURE = "%matplotlib inline\nimport matplotlib.pyplot as plt\n_ = plt.plot([1, 2])"


def write(path, *sources, **metadata):
    cells = [new_markdown_cell("# Title"), *map(new_code_cell, sources)]
    notebook = new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A notebook with a widget and a picture, run and stored once; also its bytes after a second time."""
    path = write(
        tmp_path_factory.mktemp("stored") / "lesson.ipynb",
        "1 + 1",
        SLIDER,
        PICTURE,
        kernelspec={"name": "my-env", "display_name": "My env"},
        widgets={"application/vnd.jupyter.widget-state+json": {}},
    )
    notebook = json.loads(path.read_text())
    notebook["cells"][0]["metadata"] = {store_notebooks.FOLDED: True}
    notebook["cells"][1]["metadata"] = {"execution": {"iopub.execute_input": "2025"}, "tags": ["capstone"]}
    notebook["cells"][1].pop("id")
    path.write_text(json.dumps(notebook))
    assert store_notebooks.main([str(path)]) == 0
    once = path.read_bytes()
    assert store_notebooks.main([str(path)]) == 0
    return once, path


def outputs(notebook, number):
    return [output["data"] for output in notebook["cells"][number]["outputs"]]


def test_outputs_are_stored_with_execution_counts(stored):
    notebook = json.loads(stored[1].read_text())
    assert [cell.get("execution_count") for cell in notebook["cells"]] == [None, 1, 2, 3]
    assert outputs(notebook, 1) == [{"text/plain": ["2"]}]


def test_storing_again_changes_nothing(stored):
    assert stored[1].read_bytes() == stored[0]


def test_what_depends_on_the_machine_is_left_out(stored):
    notebook = json.loads(stored[1].read_text())
    assert notebook["metadata"] == store_notebooks.NOTEBOOK_METADATA
    assert notebook["cells"][0]["metadata"] == {store_notebooks.FOLDED: True}
    assert notebook["cells"][1]["metadata"] == {"tags": ["capstone"]}
    assert all(len(cell["id"]) == 8 for cell in notebook["cells"])
    nbformat.validate(nbformat.read(stored[1], as_version=4))


def test_a_widget_leaves_its_text_and_no_reference_to_a_dead_kernel(stored):
    (data,) = outputs(json.loads(stored[1].read_text()), 2)
    assert set(data) == {"text/plain"}
    assert "scale" in "".join(data["text/plain"])


def test_a_picture_of_the_course_is_shown_as_wide_as_its_smallest_type_needs(stored):
    (output,) = json.loads(stored[1].read_text())["cells"][3]["outputs"]
    assert Image.open(io.BytesIO(base64.b64decode("".join(output["data"]["image/png"])))).size[0] > 100
    assert output["metadata"]["image/png"]["unconfined"]
    nine_inches = io.BytesIO()
    Image.new("P", (9 * DPI, 1)).save(nine_inches, "PNG")
    shown = store_notebooks.legible(base64.b64encode(nine_inches.getvalue()).decode())
    assert 11 <= SMALL / 72 * shown["width"] / 9 < 11.02
    assert shown["width"] <= 820, "what JupyterLab leaves beside its file browser"


def test_packing_a_picture_keeps_every_pixel():
    pixels = np.indices((64, 64)).sum(0).astype(np.uint8) % 7 * 30
    loose = io.BytesIO()
    Image.fromarray(pixels).save(loose, "PNG", compress_level=0)
    packed = store_notebooks.smaller_png(base64.b64encode(loose.getvalue()).decode())
    assert len(packed) < len(loose.getvalue())
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(packed)))), pixels)
    assert len(store_notebooks.smaller_png(packed)) <= len(packed), "not made larger"


def test_a_notebook_that_raises_stays_as_it_was(tmp_path, capfd):
    path = write(tmp_path / "broken.ipynb", "1 / 0")
    before = path.read_bytes()
    assert store_notebooks.main([str(path)]) == 1
    assert path.read_bytes() == before
    said = capfd.readouterr().err
    assert "ZeroDivisionError" in said
    assert "broken.ipynb was not stored" in said


def test_the_learners_progress_is_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.setenv("AMP_LESSONS_HOME", str(tmp_path / "progress"))
    path = write(tmp_path / "lesson.ipynb", "import os\nprint(os.environ['AMP_LESSONS_HOME'])")
    store_notebooks.main([str(path)])
    assert str(tmp_path / "progress") not in path.read_text()
