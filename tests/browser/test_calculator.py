"""An answer that is computed beside the cells, and comes later: the calculator of lesson 05."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tools.browser.jupyter_page import OUTPUTS

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/05_speed_and_memory.ipynb"


@pytest.fixture
def calculator(lesson) -> Locator:
    return lesson.view_with(lesson.page.locator(OUTPUTS).get_by_label("GPU", exact=True))


def test_the_calculator_answers_for_another_batch_and_gpu(lesson, calculator):
    caption = calculator.locator("figcaption")
    expect(caption).to_contain_text("Not even a batch of 1 fits.")  # GPT-2 XL
    calculator.get_by_label("model", exact=True).select_option(label="GPT-2")
    calculator.get_by_label("GPU", exact=True).select_option(label="T4")
    field = calculator.get_by_label("batch")
    expect(field).to_have_value("8")  # the model brings its own batch
    field.fill("2")
    field.press("Enter")
    peak = lesson.evaluate(
        "from amp_lessons import bench, measure\n"
        "from amp_lessons.autocast import fake_tensors\n"
        "with fake_tensors():\n"
        "    small = bench.WORKLOADS['GPT-2'].build()\n"
        "    two = bench.WORKLOADS['GPT-2'].batch(small, 2)\n"
        "found = measure.predict_memory(small, precision_name='fp16', **two)\n"
        "print(f'{found.peak_bytes / 2**30:.2f} GiB')"
    ).strip()
    expect(caption).to_contain_text("GPT-2, 2 sequences of 1,024 tokens")
    expect(caption).to_contain_text(f"{peak} at the peak")
    expect(caption).to_contain_text("T4 has for tensors")
    expect(caption).to_contain_text("The largest batch that fits")
    assert lesson.errors == []
