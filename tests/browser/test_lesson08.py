"""Lesson 08 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons.quizzes import question
from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

NOTEBOOK = "notebooks/08_many_gpus.ipynb"


@pytest.fixture
def made_up(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Ranks"))


@pytest.fixture
def real(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Ranks"), nth=1)


def test_more_ranks_make_the_ring_worse_and_the_caption_follows_the_keyboard(lesson, made_up):
    slider = made_up.get_by_role("slider", name="Ranks")
    for key, ranks, left in (("End", "1,024", True), ("Home", "2", False)):
        slider.press(key)
        caption = made_up.locator("figcaption")
        expect(caption).to_contain_text(f"{ranks} ranks (ranks agree), ring in bf16")
        assert ("of its length" in caption.inner_text()) is left
    slider.press("ArrowRight")
    expect(made_up.locator("figcaption")).to_contain_text("4 ranks (ranks agree)")
    assert lesson.evaluate("print(reductions.exponent)").strip() == "2"


def test_way_dtype_and_gradients_are_picked(lesson, made_up):
    for label, choice in (("algorithm", "tree"), ("each hop in", "fp16"), ("gradients", "ranks disagree")):
        made_up.get_by_label(label).select_option(label=choice)
    expect(made_up.locator("figcaption")).to_contain_text("(ranks disagree), tree in fp16")
    expected = lesson.evaluate("print(reductions.growth('tree', 'fp16').errors[reductions.exponent - 1])")
    assert float(expected) == pytest.approx(float(lesson.evaluate("print(reductions.error)")))


def test_real_gradients_are_picked_by_the_state_of_the_network(real):
    real.get_by_label("gradients").select_option(label="after 300 steps")
    expect(real.locator("figcaption")).to_contain_text("256 ranks (after 300 steps), ring in bf16")


@pytest.mark.parametrize("name", ["ranks.one_overflows", "ranks.recap_memory"])
def test_a_question_says_why_an_answer_is_wrong_and_takes_the_right_one(lesson, name):
    asked = question(name)
    wrong = next(choice for choice in asked.choices if not choice.right)
    right = "abcd"[[choice.right for choice in asked.choices].index(True)]
    lesson.expect_a_question_to_answer(wrong.text, right)


def test_nothing_of_ours_keeps_anyone_out(lesson):
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_says_how_to_get_its_controls(lesson):
    expect_it_the_next_morning(lesson)
