from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from amp_lessons import quizzes
from classroom.slides.__main__ import main
from classroom.slides.choosing import slides
from classroom.slides.deck import page, write_deck

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
ASKED = re.compile(r'views\.Quiz\("([\w.]+)"\)')


def read(path: Path):
    return nbformat.read(path, as_version=4)


def pictures(cells) -> int:
    return sum("image/png" in out.get("data", ()) for cell in cells for out in cell.get("outputs", ()))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_headings_predictions_and_pictures_are_on_slides_and_answers_are_not(notebook):
    lesson = read(notebook)
    chosen = list(slides(lesson))
    told = "\n".join(cell.source for cell in chosen if cell.cell_type == "markdown")
    for cell in lesson.cells:
        if cell.cell_type == "markdown" and cell.source.startswith("#"):
            assert cell.source.splitlines()[0] in told
    asked = [id for cell in lesson.cells for id in ASKED.findall(cell.source)]
    assert len(asked) > 1
    for question in map(quizzes.question, asked):
        assert question.text in told
        assert all(choice.text in told for choice in question.choices)
        assert question.answer.why not in told
    assert pictures(chosen) == pictures(lesson.cells)


def test_the_surprise_is_asked_before_it_is_shown():
    chosen = [cell for cell in slides(read(NOTEBOOKS[3])) if cell.cell_type == "code" and cell.source]
    assert [cell.id for cell in chosen] == ["surprise", "surprise"]
    assert [bool(cell.outputs) for cell in chosen] == [False, True]


def test_questions_of_one_view_have_a_slide_each():
    lesson = read(next(path for path in NOTEBOOKS if path.stem == "06_when_amp_breaks"))
    curves = [cell.source for cell in slides(lesson) if cell.source.startswith("**Curve ")]
    assert len(curves) == 12
    assert all(source.count("- a)") == 1 for source in curves)


def test_what_a_page_shows_is_never_markup_of_the_lesson():
    title = nbformat.v4.new_markdown_cell("# <script>alert(1)</script> & more")
    lesson = nbformat.v4.new_notebook(cells=[title], metadata={})
    assert "<title>&lt;script&gt;alert(1)&lt;/script&gt; &amp; more</title>" in page(lesson)


def test_a_page_needs_nothing_beside_itself():
    made = page(read(NOTEBOOKS[3]))
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]+(?:src|href)="(?!data:)', made)
    assert not re.search(r"@import|url\((?!data:)", made)
    assert not re.findall(r'<a href="(?!https:)[^"]*"', page(read(NOTEBOOKS[0])))
    assert 'alt="[measured] Scale 2⁰:' in made


def test_the_command_names_the_lessons_that_there_are(tmp_path, capsys):
    assert main(["42", "--out", str(tmp_path)]) == 1
    assert "no such lesson: 42; there are 00" in capsys.readouterr().err
    assert main(["00", "--out", str(tmp_path / "new")]) == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["00_start_here.html"]


@pytest.mark.thorough
@pytest.mark.browser
def test_keys_turn_the_slides_and_every_slide_fits(tmp_path, browser):
    deck = write_deck(NOTEBOOKS[0], tmp_path)
    tab = browser.new_context(offline=True, viewport={"width": 1024, "height": 640}).new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(deck.as_uri())
    slides_there = tab.locator("section").count()
    sections = "[...document.querySelectorAll('section')]"
    assert tab.evaluate(f"{sections}.filter(s => s.offsetHeight > innerHeight + 2).length") == 0
    shown = "slides.indexOf(slides[here()])"
    last = slides_there - 1
    presses = [("ArrowRight", 1), (" ", 2), ("ArrowLeft", 1), ("End", last), ("PageDown", last), ("Home", 0)]
    for key, place in presses:
        tab.keyboard.press(key)
        tab.wait_for_function(f"{shown} === {place}")
    assert errors == []
