"""An answer that is computed beside the cells, and comes later: the calculator of lesson 05."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tools.browser.jupyter_page import OUTPUTS

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/05_speed_and_memory.ipynb"


def test_the_calculator_answers_for_another_batch_and_gpu(lesson):
    calculator = lesson.view_with(lesson.page.locator(OUTPUTS).get_by_label("GPU", exact=True))
    caption = calculator.locator("figcaption")
    expect(caption).to_contain_text("Not even a batch of 1 fits.")  # GPT-2 XL
    calculator.get_by_label("model", exact=True).select_option(label="GPT-2")
    calculator.get_by_label("GPU", exact=True).select_option(label="T4")
    field = calculator.get_by_label("batch")
    expect(field).to_have_value("8")  # the model brings its own batch
    field.fill("2")
    field.press("Enter")
    for words in (
        "GPT-2, 2 sequences of 1,024 tokens",
        "T4 has for tensors",
        "The largest batch that fits: ",
    ):
        expect(caption).to_contain_text(words)
    assert lesson.errors == []
