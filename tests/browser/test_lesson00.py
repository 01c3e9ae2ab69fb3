"""Lesson 00 as a newcomer uses it."""

from __future__ import annotations

import re

from playwright.sync_api import expect

NOTEBOOK = "notebooks/00_start_here.ipynb"


def test_the_slider_runs_the_cell_that_the_learner_read(lesson):
    slider = lesson.page.get_by_role("slider", name="batch size")
    caption = lesson.view_with(slider).locator("figcaption")
    kib = {}
    for key, batch_size in (("Home", 16), ("End", 1024)):
        slider.press(key)
        expect(caption).to_contain_text(f"batch size {batch_size:,}.", timeout=30_000)
        said = re.search(r"KiB saved for backward: fp32 ([\d,.]+), bf16 ([\d,.]+)", caption.inner_text())
        kib[batch_size] = [float(number.strip(".").replace(",", "")) for number in said.groups()]
    assert kib[16][0] < kib[16][1], "with a small batch the copies of the weights outweigh the savings"
    assert kib[1024][0] > kib[1024][1]


def test_a_prediction_is_answered_and_nothing_keeps_anyone_out(lesson):
    lesson.page.get_by_role("button", name="The activations saved for backward").press("Enter")
    expect(lesson.page.get_by_text("Yes. The inputs of matrix products")).to_be_visible()
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []


def test_a_newcomer_is_led_through_the_view_by_keyboard(lesson):
    view = lesson.view_with(lesson.page.get_by_role("slider", name="batch size"))
    said = view.locator("p[aria-live]").first
    outlined = view.locator(".amp-tour-here")
    if view.get_by_role("button", name="End the tour").is_visible():
        view.get_by_role("button", name="End the tour").press("Enter")  # other tests have moved the slider
    view.get_by_role("button", name="Show me around again").press("Enter")
    expect(said).to_contain_text("1 of 3.")
    expect(outlined.get_by_role("slider")).to_be_visible()
    lesson.page.keyboard.press("Tab")
    expect(view.get_by_role("button", name="End the tour")).to_be_focused()
    lesson.page.keyboard.press("Tab")
    lesson.page.keyboard.press("End")
    lesson.page.keyboard.press("Home")
    expect(said).to_contain_text("2 of 3.", timeout=30_000)
    expect(outlined.locator("figure")).to_be_visible()
    view.get_by_role("button", name="Next").press("Enter")
    expect(said).to_contain_text("3 of 3.")
    lesson.page.get_by_role("slider", name="batch size").press("ArrowRight")
    expect(said).to_contain_text("This is how every view works", timeout=30_000)
    expect(outlined).to_have_count(0)
