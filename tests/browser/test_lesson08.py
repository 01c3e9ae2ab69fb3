"""Lesson 08 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

pytestmark = pytest.mark.thorough

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


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
