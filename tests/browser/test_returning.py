"""Somebody comes back to a lesson: JupyterLab goes to where they go on, and their cells run alone."""

from __future__ import annotations

import json
import re
import secrets

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/03_loss_scaling.ipynb"
STOPPED = "you stopped in lesson 03, “Move the scale”."
ACTIVE = "return panel.content.activeCell.model.id"
ANSWERED = {"right": True, "at": "2026-01-01T20:00:00+00:00", "chosen": ""}
EARLIER = {**ANSWERED, "right": False, "at": "2026-01-01T19:00:00+00:00"}


@pytest.fixture
def yesterday(lab_server):
    """The record of somebody who answered two questions of lesson 03 on another day."""
    answers = {"scaling.over_time": EARLIER, "scaling.window": ANSWERED}
    kept = {"schema": 1, "exercises": {}, "answers": answers}
    lab_server.progress.mkdir(exist_ok=True)
    record = lab_server.progress / "progress.json"
    record.write_text(json.dumps(kept))
    yield
    record.unlink()


def test_the_page_goes_to_the_next_cell_and_the_first_run_says_where_one_stopped(yesterday, open_notebook):
    opened = open_notebook(NOTEBOOK, unfolded=False)
    expect(opened.page.locator(".Toastify")).to_contain_text(STOPPED)
    card = opened.page.locator(".jp-CodeCell", has_text='ExerciseCard("largest_safe_scale")')
    expect(card).to_be_in_viewport()
    active = opened._in_jupyterlab(ACTIVE)
    assert active == "largest-safe-scale-card", "the cell below the question is not there"
    opened.page.keyboard.press("Shift+Enter")
    expect(card.locator(".jp-RenderedMarkdown").first).to_contain_text(STOPPED)
    expect(opened.card("The largest safe scale")).to_be_visible()
    opened.page.locator(".Toastify").get_by_role("button", name="Next: lesson 03").click()
    expect(card).to_have_class(re.compile("jp-mod-active"))
    expect(card).to_be_in_viewport()
    assert opened.errors == []


def test_the_first_page_says_where_one_stopped_whichever_it_is(yesterday, open_notebook):
    opened = open_notebook("00_start_here.ipynb", unfolded=False)
    page = opened.page
    expect(page.locator(".Toastify")).to_contain_text(STOPPED)
    page.evaluate("sessionStorage.clear()")  # the browser was closed
    page.goto(opened.server.url(f"/lab/workspaces/{secrets.token_hex(4)}"))  # no notebook is open there
    expect(page.locator(".jp-LauncherCard").first).to_be_visible()
    expect(page.locator(".Toastify")).to_contain_text(STOPPED)
    page.locator(".Toastify").get_by_role("button", name="Next: lesson 03").click()
    card = page.locator(".jp-CodeCell", has_text='ExerciseCard("largest_safe_scale")')
    expect(card).to_have_class(re.compile("jp-mod-active"))
    page.reload()
    expect(card).to_be_visible()
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    assert opened.errors == []


def test_for_somebody_new_the_page_stays_at_the_top(open_notebook):
    opened = open_notebook(NOTEBOOK, unfolded=False)
    assert opened._in_jupyterlab(ACTIVE) == "objective"
    expect(opened.page.locator(".Toastify__toast")).to_have_count(0)


def test_what_answers_the_question_of_yesterday_is_not_covered_on_a_page_that_was_not_saved(
    yesterday, open_notebook
):
    opened = open_notebook("03_loss_scaling.ipynb")  # as it came
    asked = opened.page.locator(".jp-CodeCell", has_text='views.Quiz("scaling.over_time")')
    expect(asked).to_contain_text("(Shift+Enter) to answer a question.")
    covered = opened.page.locator(".amp-covered")
    expect(covered.filter(has_text="network does not suffer visibly")).to_have_count(1)
    expect(covered.filter(has_text="These are two measures.")).to_have_count(0)
    expect(covered.filter(has_text="End of lesson 03.")).to_have_count(0)
    assert opened.errors == []
