"""A training that runs beside the cells, twice: the races of lesson 04."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/04_fp32_vs_amp.ipynb"
FIRST, SECOND = 0, 1


@pytest.fixture
def view(lesson):
    """The view that waits for the learner, stopped and with fp16 and the digits chosen."""
    found = lesson.view_with(lesson.page.get_by_label("task"), FIRST)
    found.get_by_role("button", name="Stop", exact=True).click()
    found.get_by_label("dtype").select_option(label="fp16")
    found.get_by_label("task").select_option(label="digits")
    lesson.wait_idle()
    return found


def caption(view: Locator) -> Locator:
    return view.locator("figcaption")


def picture(view: Locator) -> str:
    return view.locator("img").get_attribute("src")


def step(view: Locator) -> int:
    return int(re.search(r"step (\d+) of", caption(view).inner_text())[1])


def press(view: Locator, name: str) -> None:
    view.get_by_role("button", name=name, exact=True).press("Enter")


def test_it_starts_and_stops_by_keyboard_and_goes_on(lesson, view):
    press(view, "Start again")
    expect(caption(view)).to_contain_text("running: step")
    early, seen = step(view), picture(view)
    expect(view.locator("img")).not_to_have_attribute("src", seen)
    press(view, "Stop")
    expect(caption(view)).to_contain_text("stopped: step")
    stopped, still = step(view), picture(view)
    assert early <= stopped < 184
    lesson.page.wait_for_timeout(400)
    assert (step(view), picture(view)) == (stopped, still)
    assert caption(view).inner_text() == lesson.evaluate(
        "from amp_lessons.course.views.widgets.race import describe\n"
        "print(describe(race.race, race.task, race.running))"
    )
    view.get_by_role("button", name="Start", exact=True).click()
    expect(caption(view)).to_contain_text("finished: step 184 of 184")
    assert lesson.errors == []


def test_cells_run_while_it_trains_and_starting_twice_runs_once(lesson, view):
    press(view, "Start again")
    press(view, "Start")
    expect(caption(view)).to_contain_text("running: step")
    answers = [lesson.evaluate("print(race.running, race.race.step)").split() for _ in range(3)]
    assert answers[0][0] == "True"
    assert int(answers[0][1]) <= int(answers[-1][1])
    expect(caption(view)).to_contain_text("finished: step 184 of 184")
    assert lesson.evaluate("print(len(race.race.fp32.losses), len(race.race.amp.losses))") == "184 184"


def test_two_views_train_side_by_side(lesson, view):
    other = lesson.view_with(lesson.page.get_by_label("task"), SECOND)
    press(other, "Start again")
    press(view, "Start again")
    expect(caption(other)).to_contain_text("character language model, fp32 against bf16")
    expect(caption(other)).to_contain_text("running: step")
    press(other, "Stop")
    expect(caption(other)).to_contain_text("stopped: step")
    stopped = step(other)
    expect(caption(view)).to_contain_text("finished: step 184 of 184")
    assert step(other) == stopped
