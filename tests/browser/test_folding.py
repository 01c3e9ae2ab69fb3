"""What is deeper is folded away in JupyterLab, opens by keyboard, and is run with the rest."""

from __future__ import annotations

import shutil

import pytest
from playwright.sync_api import expect

from tools.browser.jupyter_page import REPOSITORY

NOTEBOOK = "notebooks/00_start_here.ipynb"


@pytest.mark.thorough
def test_what_is_deeper_is_folded_opens_by_keyboard_and_is_run_with_the_rest(course, open_notebook):
    shutil.copy(REPOSITORY / NOTEBOOK, course / NOTEBOOK)  # with all its cells
    fresh = open_notebook(NOTEBOOK, unfolded=False)
    headings = fresh.page.get_by_role("heading", name="Deeper:")
    below = fresh.page.locator(".jp-CodeCell").filter(has_text="machine = devices.describe()")
    expect(headings).to_have_count(3)
    for heading in headings.all():
        expect(heading).to_be_visible()
    expect(fresh.page.locator("p", has_text="folded sections follow the core")).to_be_visible()
    expect(below).to_be_hidden()
    expect(fresh.page.locator("em", has_text="End of lesson 00.")).to_be_hidden()
    fresh.page.get_by_role("heading", name="Deeper: What can this machine do?").click()
    fresh.page.keyboard.press("ArrowRight")
    expect(below).to_be_visible()
    expect(fresh.page.locator("em", has_text="End of lesson 00.")).to_be_hidden()
    fresh.run_all()
    assert fresh.evaluate("print(sorted(scores))") == "['bf16', 'fp32']"
    expect(fresh.page.locator(".jp-CodeCell").filter(has_text="def accuracy(")).to_be_hidden()
    assert fresh.errors == []
