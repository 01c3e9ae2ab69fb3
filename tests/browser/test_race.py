"""A training that runs beside the cells, twice: the races of lesson 04."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/04_fp32_vs_amp.ipynb"


def caption(view: Locator) -> Locator:
    return view.locator("figcaption")


def step(view: Locator) -> int:
    return int(re.search(r"step (\d+) of", caption(view).inner_text())[1])


def press(view: Locator, name: str) -> None:
    view.get_by_role("button", name=name, exact=True).press("Enter")


def test_two_train_side_by_side_beside_the_cells_and_one_is_stopped_and_goes_on(lesson):
    view, other = (lesson.view_with(lesson.page.get_by_label("task"), nth) for nth in (0, 1))
    for each in (other, view):
        press(each, "Start again")
    press(view, "Start")  # once more changes nothing
    expect(caption(other)).to_contain_text("character language model, fp32 against bf16")
    for each in (other, view):
        expect(caption(each)).to_contain_text("running: step")
    picture = view.locator("img")
    expect(picture).not_to_have_attribute("src", picture.get_attribute("src"))
    assert lesson.evaluate("print(race.running)").strip() == "True"
    press(other, "Stop")
    expect(caption(other)).to_contain_text("stopped: step")
    stopped, still = step(other), other.locator("img").get_attribute("src")
    expect(caption(view)).to_contain_text("finished: step 184 of 184")
    assert (step(other), other.locator("img").get_attribute("src")) == (stopped, still)
    assert lesson.evaluate("print(len(race.race.fp32.losses), len(race.race.amp.losses))") == "184 184"
    press(other, "Start")
    expect(caption(other)).not_to_contain_text("stopped")
    expect(caption(other)).not_to_contain_text(f"step {stopped} of")
    press(other, "Stop")
    assert step(other) > stopped
    assert lesson.errors == []
