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
SHOWS_A_VIEW = re.compile(  # what is read is no picture: questions, cards, findings
    r"^views\.(?!Quiz|CurveQuiz|SymptomTree|ExerciseCard|FlashCards|DrillView|AuditFindings|LessonEnd|Map|DesignRound|check)[A-Za-z]+\(",
    re.MULTILINE,
)


def outputs_of(path, pattern):
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]
    return [(cell.id, cell.outputs[-1].get("data", {})) for cell in cells if pattern.search(cell.source)]


def test_there_are_lessons():
    assert [path.name[:2] for path in NOTEBOOKS][:1] == ["00"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_view_is_stored_as_a_picture_that_carries_its_caption(path):
    for cell, data in outputs_of(path, SHOWS_A_VIEW):
        assert "image/png" in data, f"{path.name}: the view of {cell} shows no picture without a kernel"
        assert len(data["text/plain"].split()) > 4, f"{path.name}: the view of {cell} has no caption"
        picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
        assert picture.width >= 600


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_question_can_be_read_and_its_answer_unfolded(path):
    for cell, data in outputs_of(path, re.compile(r"^views\.(Curve)?Quiz\(", re.MULTILINE)):
        assert "<details>" in data["text/markdown"], f"{path.name}: {cell}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_cards_and_drills_can_be_read_and_their_answers_unfolded(path):
    for cell, data in outputs_of(path, re.compile(r"^views\.(FlashCards|DrillView)\(", re.MULTILINE)):
        assert "<details>" in data["text/markdown"], f"{path.name}: {cell}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_ways_from_a_symptom_to_its_cause_can_be_read(path):
    for cell, data in outputs_of(path, re.compile(r"^\w+ = views\.SymptomTree\(\)\n\w+$", re.MULTILINE)):
        assert data["text/markdown"].startswith("**the loss is NaN or inf**"), f"{path.name}: {cell}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_exercise_can_be_read_and_its_hints_unfolded(path):
    for cell, data in outputs_of(path, re.compile(r"^views\.ExerciseCard\(", re.MULTILINE)):
        assert data["text/markdown"].startswith("**Exercise: "), f"{path.name}: {cell}"
        folds = re.findall("<details><summary>(.+?)</summary>", data["text/markdown"])
        assert folds == ["What the check asks", "Hint 1", "Hint 2", "Hint 3"], f"{path.name}: {cell}"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_what_comes_next_can_be_read(path):
    ((cell, data),) = outputs_of(path, re.compile(r"^views\.LessonEnd\("))
    assert ".ipynb" in data["text/markdown"], f"{path.name}: {cell}"


@pytest.mark.few(3)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_nbconvert_shows_every_stored_picture(path):
    picture = 'src="data:image/png;base64,'
    stored = sum(
        ("image/png" in output.get("data", {})) + output.get("data", {}).get("text/html", "").count(picture)
        for cell in nbformat.read(path, 4).cells
        for output in cell.get("outputs", [])
    )
    page, _ = HTMLExporter().from_filename(str(path))
    assert page.count(picture) == stored
