"""The one way through JupyterLab that `make test` goes: a copy, a slider, a quiz, a check, a morning.

For `make test-all`, `test_lessons.py` goes through every lesson, and a mechanism that one view has is a file.
"""

from __future__ import annotations

import urllib.request

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from playwright.sync_api import Locator, expect

from amp_lessons import exercises, lessons, quizzes
from amp_lessons.course.views.widgets.quiz import LETTERS
from tests.browser.next_morning import expect_it_the_next_morning
from tests.course.exercises.spots import exercises_alone
from tools.browser.chromium import PATIENCE_MS
from tools.browser.jupyter_page import LIVE, REPOSITORY

NOTEBOOK = "notebooks/pass.ipynb"
SHOWN = (
    "from amp_lessons import views\nviews.Quiz('scaling.floor')",
    "import torch\ncensus = views.CensusView(torch.logspace(-9, 3, 99))\ncensus",
    'views.ExerciseCard("decode_bits")',
)
FORGETS = "            self._clean_steps = 0\n        else:"  # what an overflow does to the count


class Spot:
    """One exercise in the open notebook."""

    def __init__(self, lesson, exercise_id):
        self.lesson, self.id = lesson, exercise_id
        self.exercise = next(each for each in exercises.catalog() if each.id == exercise_id)
        self.solution = self.exercise.solution_source

    def card(self) -> Locator:
        return self.cell(f'views.ExerciseCard("{self.id}")').locator(f".amp-card{LIVE}")

    def button(self, name) -> Locator:
        return self.card().get_by_role("button", name=name, exact=True)

    def report(self) -> Locator:
        return self.cell(f'views.check("{self.id}"').locator(".jp-OutputArea-output")

    def cell(self, source) -> Locator:
        editor = self.lesson.page.locator(".jp-CodeCell .jp-InputArea-editor").filter(has_text=source)
        return editor.locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')][1]")

    def write_and_check(self, source) -> Locator:
        """Type into the stub's cell, run it and the check below it, and return the report."""
        at = self.card().locator("xpath=ancestor::*[contains(@class, 'jp-CodeCell')][1]")
        stub = at.locator("xpath=following-sibling::*[contains(@class, 'jp-CodeCell')][1]")
        stub.locator(".cm-content").click()
        keyboard = self.lesson.page.keyboard
        keyboard.press("Control+a")
        keyboard.insert_text(source)
        keyboard.press("Shift+Enter")
        keyboard.press("Shift+Enter")
        self.lesson.wait_idle()
        return self.report()


@pytest.fixture(scope="module", autouse=True)
def notebook(course):
    """A view, a question and exercises; that they stand in a lesson and run there is tested elsewhere."""
    written = exercises_alone("03")
    written.cells = [*map(new_code_cell, SHOWN), *written.cells]
    nbformat.write(written, course / NOTEBOOK)
    return NOTEBOOK


def test_a_fresh_copy_opens_on_the_first_lesson_and_nothing_was_run(lab_server, browser):
    """Nor is there a question about news, and whoever only looks and saves has touched nothing."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE_MS)
    page.goto(lab_server.url("/"))
    expect(page.get_by_role("heading", name="Start here")).to_be_visible()
    assert "/lab/tree/00_start_here.ipynb" in page.url
    root = page.request.get(lab_server.url("/api/contents")).json()
    notebooks = {path.name for path in (REPOSITORY / "notebooks").glob("*.ipynb")}
    assert {entry["name"] for entry in root["content"]} - {"notebooks"} == notebooks
    expect(page.get_by_text("Run this cell (Shift+Enter) to answer a question.").first).to_be_visible()
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.locator("img").count() == 0
    assert outputs.filter(has_text="[measured]").count() == 0
    lesson = lab_server.root / "00_start_here.ipynb"
    before = lesson.stat().st_mtime_ns
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    assert lesson.stat().st_mtime_ns != before
    page.wait_for_timeout(3000)  # the question comes some time after the page
    assert page.get_by_text("official Jupyter news").count() == 0
    assert page.get_by_role("dialog").count() == 0
    page.goto(lab_server.url("/lab/tree/03_loss_scaling.ipynb"))
    expect(page.locator(".amp-covered", has_text="These are two measures.")).to_have_count(1)
    page.close()
    assert lessons.reset(lab_server.root, lessons.originals(), "00").kept is None


def test_without_the_token_nobody_gets_in(lab_server):
    with urllib.request.urlopen(f"http://127.0.0.1:{lab_server.port}/lab", timeout=60) as answer:
        assert "Token authentication is enabled" in answer.read().decode()


def test_a_slider_moved_by_keyboard_runs_a_cells_function_and_redraws(lesson):
    slider = lesson.page.get_by_role("slider", name="Loss scale")
    view = lesson.view_with(slider)
    bars = view.locator("[id^=amp-moving] path")
    for key, said in (("Home", "Scale 2⁰:"), ("ArrowRight", "Scale 2¹:"), ("End", "Scale 2⁴⁰:")):
        slider.press(key)
        expect(view.locator("figcaption")).to_contain_text(said)
        outlines = lesson.evaluate("print(*census.page.outlines.values(), sep='\\n')").splitlines()
        for bar, outline in zip(bars.all(), outlines, strict=True):
            expect(bar).to_have_attribute("d", outline)
        expect(view.get_by_role("img", name=said)).to_be_visible()
    expect(slider).to_be_focused()
    assert lesson.errors == []


def test_a_question_is_answered_by_keyboard_and_says_why(lesson):
    asked = quizzes.question("scaling.floor")
    wrong = next(each for each in asked.choices if not each.right)
    lesson.expect_a_question_to_answer(wrong.text, LETTERS[asked.choices.index(asked.answer)])
    assert lesson.errors == []


def test_what_is_typed_is_checked_and_the_card_knows(lesson):
    safe_scale = Spot(lesson, "largest_safe_scale")
    expect(safe_scale.card()).to_contain_text("Not started yet.")
    expect(safe_scale.report()).to_contain_text("not attempted yet")
    report = safe_scale.write_and_check("def largest_safe_scale(gradients):\n    return 65504.0")
    expect(report).to_contain_text("not passed")
    expect(report).to_contain_text("not_a_power_of_two")
    expect(safe_scale.card()).to_contain_text("So far: 1 try")
    report = safe_scale.write_and_check(safe_scale.solution)
    expect(report).to_contain_text("The largest safe scale: passed")
    expect(safe_scale.card()).to_contain_text("So far: solved")
    assert lesson.errors == []


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)


@pytest.mark.thorough
def test_hints_open_one_after_the_other_by_keyboard_and_the_solution_asks_first(lesson):
    spot, keyboard = Spot(lesson, "decode_bits"), lesson.page.keyboard
    expect(spot.button("Hint 2")).to_be_disabled()
    spot.button("Hint 1").focus()
    following = ["Hint 2", "Hint 3", "Show solution"]
    for number, after in enumerate(following, start=1):
        expect(spot.button(f"Hint {number}")).to_be_focused()
        keyboard.press("Enter")
        expect(spot.card()).to_contain_text(f"Hint {number} of 3.")
        expect(spot.card()).to_contain_text(f"So far: {number} hint")
        expect(spot.button(after)).to_be_enabled()  # Tab passes over a button that is not yet
        keyboard.press("Tab")
    last_line = spot.solution.strip().splitlines()[-1].strip()
    spot.button("Show solution").press("Enter")
    expect(spot.card()).to_contain_text("gives the whole answer away")
    spot.button("Keep trying").press("Enter")
    expect(spot.button("Keep trying")).to_be_hidden()
    expect(spot.button("Show solution")).to_be_focused()
    assert last_line not in spot.card().inner_text()
    keyboard.press("Enter")
    spot.button("Show it anyway").press("Enter")
    expect(spot.card()).to_contain_text(last_line)
    expect(spot.card()).to_contain_text("solution seen")
    expect(spot.button("Show solution")).to_be_focused()
    assert lesson.errors == []


@pytest.mark.thorough
def test_a_scaler_is_drawn_beside_pytorchs_and_nobody_is_kept_out_of_a_report(lesson):
    scaler = Spot(lesson, "loss_scaler")
    report = scaler.write_and_check(scaler.solution.replace(FORGETS, "        else:"))
    expect(report).to_contain_text("get_scale() went from")
    expect(report.get_by_text("Your own loss scaler: not passed")).to_be_in_viewport()
    drawing = report.get_by_role("img", name="at iteration 7 yours is 2⁵ instead of 2³")
    expect(drawing).to_be_visible()
    expect(report.locator("table")).to_be_hidden()
    report.get_by_text("The numbers").press("Enter")
    expect(report.locator("table")).to_contain_text("scale after each update")
    assert lesson.serious_axe_violations() == []
    report = scaler.write_and_check(scaler.solution)
    expect(report).to_contain_text("Your own loss scaler: passed")
    expect(report.get_by_role("img", name="follows the expected one")).to_be_visible()
    assert lesson.errors == []
