"""Lesson 11 as a learner uses it: by keyboard, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/11_language_models.ipynb"


@pytest.fixture
def parts(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("checkbox", name="router", exact=True))


@pytest.fixture
def few_bits(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Weights to a scale"))


def test_parts_are_chosen_by_keyboard_and_the_decoder_answers(lesson, parts):
    caption = parts.locator("figcaption")
    expect(caption).to_contain_text("All parts in bf16")
    for part in ("embedding", "residual", "norms", "linear", "attention", "router"):
        parts.get_by_role("checkbox", name=part, exact=True).press("Space")
    expect(caption).to_contain_text("head, loss in bf16")
    typical = lesson.evaluate(
        "how = decoder.Arithmetic({'head': torch.bfloat16, 'loss': torch.bfloat16})\n"
        "print(f'{decoder.changes(model, inputs[:64], targets[:64], how).typical:.4f}')"
    ).strip()
    expect(caption).to_contain_text(f"typically changes by {typical},")
    parts.get_by_label("in", exact=True).select_option(label="fp16")
    expect(caption).to_contain_text("head, loss in fp16")
    parts.get_by_role("checkbox", name="keep fp32's experts").press("Space")
    expect(caption).to_contain_text("0 choices of experts differ")
    assert lesson.errors == []


def test_bits_and_groups_are_moved_by_keyboard(lesson, few_bits):
    caption = few_bits.locator("figcaption")
    expect(caption).to_contain_text("4 bits, 32 to a scale: 4.5 bits per weight")
    few_bits.get_by_role("slider", name="Weights to a scale").press("End")
    expect(caption).to_contain_text("4 bits, a row to a scale")
    few_bits.get_by_role("slider", name="Bits").press("Home")
    expect(caption).to_contain_text("2 bits, a row to a scale")
    assert lesson.errors == []


def test_storage_is_chosen_and_a_length_typed_by_keyboard(lesson):
    decoding = lesson.view_with(lesson.page.get_by_label("tokens before", exact=True))
    caption = decoding.locator("figcaption")
    expect(caption).to_contain_text("Llama 3 8B on the H100 SXM, weights in 16 bits")
    decoding.get_by_label("weights in", exact=True).select_option(label="INT4, groups of 32")
    expect(caption).to_contain_text("weights in INT4, groups of 32")
    length = decoding.get_by_label("tokens before", exact=True)
    length.fill("32768")
    length.press("Enter")
    expect(caption).to_contain_text("after 32,768 tokens")
    length.fill("-3")
    length.press("Enter")
    expect(decoding).to_contain_text("The number of tokens")
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
