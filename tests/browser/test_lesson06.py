"""Lesson 06 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from amp_lessons import clinic
from amp_lessons.course.quizzes import question
from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/06_when_amp_breaks.ipynb"
WALK = ("the loss is flat", "five to tens of thousands of times less far than in fp32; the loss is scaled")


@pytest.fixture
def tree(lesson):
    """The questions about symptoms, at the first one again when the test is over."""
    view = lesson.view_with(lesson.button("Back"))
    yield view
    view.get_by_role("button", name="Start again").click()


def test_the_tree_is_walked_by_keyboard_to_an_end_and_back(lesson, tree):
    for answer in WALK:
        tree.get_by_role("button", name=answer, exact=True).press("Enter")
    expect(tree).to_contain_text("Lesson 06 explains it")
    assert lesson.evaluate("print(tree.end.lesson)") == "06"
    tree.get_by_role("button", name="Back").press("Enter")
    expect(tree.get_by_role("button", name="as far as in fp32")).to_be_visible()
    assert lesson.evaluate("print(tree.end)") == "None"


def test_the_keyboard_stays_in_the_tree(lesson, tree):
    for answer in WALK:
        tree.get_by_role("button", name=answer, exact=True).press("Enter")
        lesson.wait_idle()
    expect(tree.get_by_role("button", name="Back")).to_be_focused()


def test_a_patient_is_diagnosed_by_keyboard_and_then_says_who_met_it(lesson):
    patient = clinic.patient("heal_same_epochs")
    wrong = next(each for each in patient.diagnoses if not each.right)
    right = "abcde"[[each.right for each in patient.diagnoses].index(True)]
    view = lesson.view_with(lesson.page.get_by_role("button", name=wrong.text))
    expect(view).not_to_contain_text(patient.seen_at[0].url)
    lesson.expect_a_question_to_answer(wrong.text, right)
    expect(view).to_contain_text(patient.seen_at[0].url)


def test_the_next_curve_brings_its_picture_and_its_question(lesson):
    view = lesson.view_with(lesson.button("Next curve"))
    first, second = (question(f"curves.{name}") for name in clinic.LOSS_CURVES[:2])
    expect(view).to_contain_text(first.text)
    view.get_by_role("button", name="Next curve").press("Enter")
    expect(view).to_contain_text(second.text)
    expect(view.get_by_role("img", name="Curve 2:")).to_be_visible()
    view.get_by_role("button", name=second.answer.text).press("Enter")
    expect(view).to_contain_text("Right at the first try: 1 of 1 tried")
    view.get_by_label("curve").select_option(label="1")
    expect(view).to_contain_text(first.text)


def test_what_an_audit_saw_is_looked_through_by_keyboard(lesson):
    view = lesson.view_with(lesson.page.get_by_label("layer", exact=True))
    expect(view).to_contain_text("no mistake seen in 20 optimizer steps")
    picture = view.locator("figure img")
    before = picture.get_attribute("src")
    layer = view.get_by_label("layer", exact=True)
    for key in ("Space", "ArrowDown", "Enter"):
        layer.press(key)
    expect(view.locator("figcaption")).to_contain_text("net.0 loses by norm, at its worst step")
    expect(picture).not_to_have_attribute("src", before)
    layer.press("Shift+Tab")
    for key in ("Space", "ArrowDown", "Enter"):
        lesson.page.keyboard.press(key)
    expect(view.locator("figcaption")).to_contain_text("net.0 loses by count")
    assert lesson.evaluate("print(seen.report.passed)") == "True"


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
