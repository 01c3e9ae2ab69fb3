"""Answers given by keyboard, one leading to the next: the tree and a patient of lesson 06."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from amp_lessons import clinic

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/06_when_amp_breaks.ipynb"
WALK = (
    "the loss is flat",
    "less far than in fp32, several or thousands of times; the loss is scaled",
    "in none, or hardly any",
)


def test_the_tree_is_walked_by_keyboard_which_stays_there_to_an_end_and_back(lesson):
    tree = lesson.view_with(lesson.button("Back"))
    for answer in WALK:
        tree.get_by_role("button", name=answer, exact=True).press("Enter")
        lesson.wait_idle()
    expect(tree).to_contain_text("Lesson 06 explains it")
    back = tree.get_by_role("button", name="Back", exact=True)
    expect(back).to_be_focused()
    back.press("Enter")
    expect(tree.get_by_role("button", name=WALK[-1], exact=True)).to_be_visible()


def test_a_patient_is_diagnosed_by_keyboard_and_then_says_who_met_it(lesson):
    patient = clinic.patient("heal_same_epochs")
    wrong = next(each for each in patient.diagnoses if not each.right)
    right = "abcde"[[each.right for each in patient.diagnoses].index(True)]
    view = lesson.view_with(lesson.page.get_by_role("button", name=wrong.text))
    expect(view).not_to_contain_text(patient.seen_at[0].url)
    lesson.expect_a_question_to_answer(wrong.text, right)
    expect(view).to_contain_text(patient.seen_at[0].url)
