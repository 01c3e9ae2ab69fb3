"""The clock on the page: it counts by itself, and says to a screen reader no more than the minutes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from amp_lessons.course.views.base import controls

pytestmark = pytest.mark.thorough

SOURCE = Path(controls.__file__).with_name("countdown.js")

# What anywidget gives a widget's script, in small.
PAGE = """<!doctype html>
<html lang="en"><title>Clock</title>
<main><h1>Clock</h1><button>Answer</button><div id="here"></div></main>
<script type="module">
const heard = {}, sent = [];
const model = {
  state: STATE,
  over: "The time is over.",
  get: (name) => model[name],
  on: (name, call) => (heard[name] = call),
  off: (name) => delete heard[name],
  send: (message) => sent.push(message),
  set: (state) => { model.state = state; heard["change:state"]?.(); },
};
SOURCE
window.model = model;
window.sent = sent;
window.remove = render({ model, el: document.getElementById("here") });
</script></html>"""


@pytest.fixture
def show(browser, tmp_path):
    """Open a page with a clock in this state, on which time passes only when it is told to."""
    with browser.new_context() as context:

        def open_(left_s, running=True):
            script = SOURCE.read_text("utf-8").replace("export default { render };", "")
            state = json.dumps({"left_s": left_s, "running": running, "set": 0})
            path = tmp_path / "clock.html"
            path.write_text(PAGE.replace("SOURCE", script).replace("STATE", state), "utf-8")
            page = context.new_page()
            page.clock.install(time=0)
            page.clock.pause_at(1_000)
            page.goto(path.as_uri())
            return page

        yield open_


def seen(page):
    return page.get_by_role("timer", include_hidden=True).text_content()


def heard(page):
    return page.locator(".amp-countdown-heard").text_content()


def test_it_ticks_and_only_minutes_are_heard(show):
    page = show(130)
    page.get_by_role("button").focus()
    assert seen(page) == "2:10 left"
    assert heard(page) == ""
    page.clock.run_for(5_000)
    assert seen(page) == "2:05 left"
    assert heard(page) == ""
    page.clock.run_for(6_000)
    assert heard(page) == "2 minutes left"
    page.clock.run_for(60_000)
    assert heard(page) == "1 minute left"
    page.clock.run_for(62_000)
    assert seen(page) == heard(page) == "The time is over."
    assert page.evaluate("document.activeElement.textContent") == "Answer"
    assert page.get_by_role("timer", name="time left").get_attribute("aria-live") == "off"
    assert page.locator("[aria-live=polite]").count() == 1
    page.clock.resume()  # axe waits
    assert Axe().run(page).response["violations"] == []


def test_it_is_seen_only_while_it_runs(show):
    page = show(0, running=False)
    assert not page.locator(".amp-countdown").is_visible()
    page.evaluate("model.set({left_s: 61, running: true, set: 1})")
    assert seen(page) == "1:01 left"
    assert heard(page) == ""
    page.evaluate("model.set({left_s: 0, running: false, set: 2})")
    assert not page.locator(".amp-countdown").is_visible()
    page.clock.run_for(5_000)
    assert seen(page) == heard(page) == ""


def test_a_page_that_is_opened_later_asks_what_is_left_and_it_goes_when_the_view_goes(show):
    page = show(600)
    assert page.evaluate("sent") == [{"asks": "what is left"}]
    page.evaluate("model.set({left_s: 300, running: true, set: 1})")
    assert seen(page) == "5:00 left"
    page.evaluate("remove()")
    page.clock.run_for(5_000)
    assert seen(page) == "5:00 left"
