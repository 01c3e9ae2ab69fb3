"""Lesson 09 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/09_fp8_and_fp4.ipynb"


@pytest.fixture
def scale(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Multiply by"))


@pytest.fixture
def accumulator(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Inner dimension"))


def test_a_scale_by_hand_is_the_compute_rooms_answer(lesson, scale):
    caption, slider = scale.locator("figcaption"), scale.get_by_role("slider", name="Multiply by")
    expect(caption).to_contain_text("Multiplied by 2¹⁵")
    slider.press("ArrowRight")
    expect(caption).to_contain_text("Multiplied by 2¹⁶")
    error = lesson.evaluate(
        "print(f'{fp8.place_by_hand(gradient, formats.FORMATS[\"fp8_e4m3\"], 16).relative_error():.1%}')"
    ).strip()
    expect(caption).to_contain_text(f"Error: {error.replace('%', ' %')} of the norm")
    slider.press("ArrowLeft")
    assert lesson.errors == []


def test_an_outlier_ruins_four_bits_and_blocks_rescue_them(lesson, scale):
    caption = scale.locator("figcaption")
    scale.get_by_label("format", exact=True).select_option(label="fp4_e2m1")
    scale.get_by_label("scale", exact=True).select_option(label="one per tensor, from its largest")
    outlier = scale.get_by_role("slider", name="Outlier")
    for _ in range(10):
        outlier.press("ArrowRight")
    expect(caption).to_contain_text("One element is 2¹⁰ = 1,024 times the largest")
    expect(caption).to_contain_text("Error: 100 % of the norm of all others")
    scale.get_by_label("scale", exact=True).select_option(label="one per 1 × 16, from its largest")
    expect(caption).to_contain_text("One scale per 1 × 16, in fp4_e2m1")
    expect(caption).not_to_contain_text("100 % of the norm")
    assert lesson.errors == []


def test_the_accumulator_is_emptied_by_keyboard(lesson, accumulator):
    caption = accumulator.locator("figcaption")
    expect(caption).to_contain_text("all positive, added up in 14 bits: the sums are 7 % off")
    accumulator.get_by_role("slider", name="Promotion").press("Home")
    expect(caption).to_contain_text("to fp32 every 32")
    accumulator.get_by_label("products", exact=True).select_option(label="of both signs")
    expect(caption).to_contain_text("of both signs")
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
