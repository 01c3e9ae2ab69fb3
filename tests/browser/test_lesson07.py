"""Lesson 07 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/07_real_models.ipynb"


def test_the_ledger_of_ones_own_model_is_stepped_through_by_keyboard(lesson):
    slider = lesson.page.get_by_role("slider", name="Operation").first
    sentence = lesson.view_with(slider).locator("figcaption")
    expect(sentence).to_contain_text("cross_entropy")  # the last one is shown first
    slider.press("ArrowLeft")
    expect(sentence).not_to_contain_text("cross_entropy")


def test_the_ledger_tells_the_residual_network_from_a_layer_of_minilm(lesson):
    ledger = lesson.view_with(lesson.page.get_by_role("slider", name="Operation"), nth=1)
    sentence = ledger.locator("figcaption")
    expect(sentence).to_contain_text("head: linear")
    ledger.get_by_label("network").select_option(label="layer of MiniLM")
    expect(sentence).to_contain_text("output.LayerNorm: layer_norm")
    expect(sentence).to_contain_text("fp32")
    ledger.get_by_label("network").select_option(label="residual network")
    expect(sentence).to_contain_text("head: linear")


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
