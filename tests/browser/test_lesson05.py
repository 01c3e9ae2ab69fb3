"""Lesson 05 as a learner uses it: by keyboard and by mouse, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning
from tools.browser.jupyter_page import OUTPUTS

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/05_speed_and_memory.ipynb"


@pytest.fixture
def memory(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Depth of module names"))


@pytest.fixture
def roofline(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Matrix size"))


@pytest.fixture
def calculator(lesson) -> Locator:
    return lesson.view_with(lesson.page.locator(OUTPUTS).get_by_label("GPU", exact=True))


def described(lesson, network, precision, optimizer):
    """Return the caption that the compute layer's footprints deserve, asked of the lesson's own kernel."""
    return lesson.evaluate(
        "from amp_lessons.course.views.widgets.memory import describe_saved, describe_step\n"
        f"predict = partial(networks[{network!r}], optimizer=measure.OPTIMIZERS[{optimizer!r}])\n"
        f"found = {{name: predict(precision_name=name) for name in ('fp32', {precision!r})}}\n"
        "print(describe_saved(found), describe_step(found))"
    ).strip()


@pytest.mark.parametrize(
    ("network", "precision", "optimizer"),
    [
        ("perceptron", "bf16", "SGD"),
        ("convolutions", "fp16", "AdamW"),
        ("transformer block", "fp16", "AdamW"),
    ],
)
def test_memory_follows_network_precision_and_optimizer(lesson, memory, network, precision, optimizer):
    picture = memory.locator("img").get_attribute("src")
    for label, choice in (("network", network), ("autocast", precision), ("optimizer", optimizer)):
        memory.get_by_label(label).select_option(label=choice)
    expected = described(lesson, network, precision, optimizer)
    expect(memory.locator("figcaption")).to_have_text(expected)
    expect(memory.locator("img")).not_to_have_attribute("src", picture)
    assert lesson.errors == []


def test_layers_are_put_together_by_keyboard(lesson, memory):
    memory.get_by_label("network").select_option(label="transformer block")
    expect(memory.locator("figcaption")).to_contain_text("20.0 MiB")
    picture = memory.locator("img").get_attribute("src")
    memory.get_by_role("slider").press("ArrowLeft")
    expect(memory.locator("img")).not_to_have_attribute("src", picture)
    memory.get_by_role("slider").press("ArrowRight")
    expect(memory.locator("img")).to_have_attribute("src", picture)


def test_a_product_is_measured_by_slider_by_typing_and_in_another_precision(lesson, roofline):
    caption, slider = roofline.locator("figcaption"), roofline.get_by_role("slider")
    slider.press("ArrowRight")
    expect(caption).to_contain_text("48 × 48 in fp32")
    field = roofline.get_by_label("or type any")
    field.fill("511")
    field.press("Enter")
    expect(caption).to_contain_text("511 × 511 in fp32")
    picture = roofline.locator("img").get_attribute("src")
    roofline.get_by_label("product in").select_option(label="bf16")
    expect(caption).to_contain_text("511 × 511 in bf16")
    expect(roofline.locator("img")).not_to_have_attribute("src", picture)
    assert lesson.errors == []


def test_a_size_that_is_no_number_is_answered_in_words(lesson, roofline):
    field = roofline.get_by_label("or type any")
    field.fill("huge")
    field.press("Enter")
    expect(roofline).to_contain_text("The matrix size")
    assert lesson.errors == []


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


def test_the_calculator_answers_for_each_of_several_ranks_by_keyboard(lesson, calculator):
    caption = calculator.locator("figcaption")
    field = calculator.get_by_label("ranks", exact=True)
    field.fill("8")
    field.press("Tab")  # from the field to the strategy, which is next
    strategy = calculator.get_by_role("slider", name="strategy")
    expect(strategy).to_be_focused()
    strategy.press("ArrowRight")
    expect(caption).to_contain_text("on each of 8 ranks that share by ZeRO-1")
    expect(caption).to_contain_text("Buffers of communication come on top")
    field.fill("1")
    field.press("Enter")
    expect(caption).not_to_contain_text("ranks")
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read(lesson, open_notebook):
    expect_it_the_next_morning(lesson, open_notebook)
