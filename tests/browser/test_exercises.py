"""Exercises as a learner does them: the card, the stub and the check, by keyboard, in JupyterLab."""

from __future__ import annotations

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from amp_lessons import exercises
from tests.exercises.spots import exercises_alone
from tools.browser.jupyter_page import LIVE

pytestmark = pytest.mark.rests_on("amp_lessons/views/")

NOTEBOOK = "notebooks/exercises_of_lesson_03.ipynb"
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
    """Lesson 03 without its lesson: that the exercises stand in it and run there is tested elsewhere."""
    nbformat.write(exercises_alone("03"), course / NOTEBOOK)


@pytest.fixture
def safe_scale(lesson):
    return Spot(lesson, "largest_safe_scale")


@pytest.fixture
def scaler(lesson):
    return Spot(lesson, "loss_scaler")


def test_at_first_nothing_has_been_attempted(safe_scale, scaler):
    for spot in (safe_scale, scaler):
        expect(spot.card()).to_contain_text("Not started yet.")
        expect(spot.report()).to_contain_text("not attempted yet")


def test_hints_open_in_turn_by_keyboard(lesson, safe_scale):
    expect(safe_scale.button("Hint 2")).to_be_disabled()
    safe_scale.button("Hint 1").focus()
    following = ["Hint 2", "Hint 3", "Show solution"]
    for number, after in enumerate(following, start=1):
        expect(safe_scale.button(f"Hint {number}")).to_be_focused()
        lesson.page.keyboard.press("Enter")
        expect(safe_scale.card()).to_contain_text(f"Hint {number} of 3.")
        expect(safe_scale.card()).to_contain_text(f"So far: {number} hint")
        expect(safe_scale.button(after)).to_be_enabled()  # Tab passes over a button that is not yet
        lesson.page.keyboard.press("Tab")
    expect(safe_scale.button("Show solution")).to_be_focused()


def test_the_solution_asks_first_and_gives_the_keyboard_back(lesson, safe_scale):
    asks, solution = "gives the whole answer away", "nextafter"
    safe_scale.button("Show solution").press("Enter")
    expect(safe_scale.card()).to_contain_text(asks)
    safe_scale.button("Keep trying").press("Enter")
    expect(safe_scale.button("Keep trying")).to_be_hidden()
    expect(safe_scale.button("Show solution")).to_be_focused()
    assert solution not in safe_scale.card().inner_text()
    lesson.page.keyboard.press("Enter")
    safe_scale.button("Show it anyway").press("Enter")
    expect(safe_scale.card()).to_contain_text(solution)
    expect(safe_scale.card()).to_contain_text("solution seen")
    expect(safe_scale.button("Show solution")).to_be_focused()


def test_what_is_typed_is_checked_and_the_card_knows(lesson, safe_scale):
    report = safe_scale.write_and_check("def largest_safe_scale(gradients):\n    return 65504.0")
    expect(report).to_contain_text("not passed")
    expect(report).to_contain_text("not_a_power_of_two")
    expect(safe_scale.card()).to_contain_text("So far: 1 try")
    report = safe_scale.write_and_check(safe_scale.solution)
    expect(report).to_contain_text("The largest safe scale: passed")
    expect(safe_scale.card()).to_contain_text("So far: solved")
    assert lesson.errors == []


def test_a_scaler_is_drawn_beside_pytorchs(lesson, scaler):
    wrong = scaler.solution.replace(FORGETS, "        else:")
    report = scaler.write_and_check(wrong)
    expect(report).to_contain_text("counter_not_reset")
    drawing = report.get_by_role("img", name="at iteration 7 yours is 2⁵ instead of 2³")
    expect(drawing).to_be_visible()
    expect(report.locator("table")).to_be_hidden()
    report.get_by_text("The numbers").press("Enter")
    expect(report.locator("table")).to_contain_text("scale after each update")
    report = scaler.write_and_check(scaler.solution)
    expect(report).to_contain_text("Your own loss scaler: passed")
    expect(report.get_by_role("img", name="follows the expected one")).to_be_visible()


def test_nothing_of_ours_keeps_anyone_out(lesson):
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []
