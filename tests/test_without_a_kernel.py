"""What a reader sees of a stored notebook where no kernel runs: on GitHub, and in nbconvert's pages."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import nbformat
import pytest
from nbconvert import HTMLExporter
from PIL import Image

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))
SHOWS_A_VIEW = (  # what is read is no picture: questions, cards, findings
    r"^views\.(?!Quiz|CurveQuiz|SymptomTree|ExerciseCard|FlashCards|DrillView|AuditFindings|LessonEnd|Map"
    r"|DesignRound|check)[A-Za-z]+\("
)


# What the markdown of other views has, by the call: answers are folded
READ = {
    r"^views\.(Curve)?Quiz\(": "<details>",
    r"^views\.(FlashCards|DrillView)\(": "<details>",
    r"^views\.LessonEnd\(": r"\.ipynb",
    r"^\w+ = views\.SymptomTree\(\)\n\w+$": r"\A\*\*the loss is NaN or inf\*\*",
    r"^views\.ExerciseCard\(": r"\A\*\*Exercise: ",
}
in_each_lesson = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def outputs_of(path, pattern):
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    found = [cell for cell in cells if re.search(pattern, cell.source, re.MULTILINE)]
    return [(cell.id, cell.outputs[-1].get("data", {})) for cell in found]


@in_each_lesson
def test_every_view_is_stored_as_a_picture_that_carries_its_caption(path):
    for cell, data in outputs_of(path, SHOWS_A_VIEW):
        assert "image/png" in data, f"{path.name}: the view of {cell} shows no picture without a kernel"
        assert len(data["text/plain"].split()) > 4, f"{path.name}: the view of {cell} has no caption"
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
        assert picture.width >= 600


@in_each_lesson
def test_what_is_no_picture_can_be_read_and_its_answers_and_hints_unfolded(path):
    assert outputs_of(path, r"^views\.LessonEnd\(")
    for call, shown in READ.items():
        for cell, data in outputs_of(path, call):
            assert re.search(shown, data["text/markdown"]), f"{path.name}: {cell}"
    for cell, data in outputs_of(path, r"^views\.ExerciseCard\("):
        folds = re.findall("<details><summary>(.+?)</summary>", data["text/markdown"])
        assert folds == ["What the check asks", "Hint 1", "Hint 2", "Hint 3"], f"{path.name}: {cell}"


@pytest.mark.few(3)
@in_each_lesson
def test_nbconvert_shows_every_stored_picture(path):
    picture = 'src="data:image/png;base64,'
    stored = sum(
        ("image/png" in output.get("data", {})) + output.get("data", {}).get("text/html", "").count(picture)
        for cell in nbformat.read(path, 4).cells
        for output in cell.get("outputs", [])
    )
    page, _ = HTMLExporter().from_filename(str(path))
    assert page.count(picture) == stored
