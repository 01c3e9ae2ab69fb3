"""Lesson 00 as a newcomer uses it: stopping, restarting, the map, and links that lead on."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from amp_lessons.course.routes import minutes
from tools.browser.jupyter_page import LIVE, REPOSITORY

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("all_lessons")]

NOTEBOOK = "notebooks/00_start_here.ipynb"
NOTE_RESTART = """() => window.jupyterapp.shell.currentWidget.sessionContext.statusChanged.connect(
    (_, status) => { window.ampRestarts ||= status.includes("restarting"); })"""


def test_a_newcomer_moves_a_slider_stops_a_cell_and_restarts_and_the_page_answers(
    open_notebook, write_notebook
):
    cells = {each["id"]: each for each in json.loads((REPOSITORY / NOTEBOOK).read_text("utf-8"))["cells"]}
    steps = ["".join(cells[each]["source"]) for each in ("surprise", "how-stop", "how-restart")]
    opened = open_notebook(write_notebook(*steps, "print(2 + 2)"))

    def run(number):
        cell = opened.page.locator(".jp-CodeCell").nth(number)
        cell.locator(".cm-content").click()
        opened.page.keyboard.press("Shift+Enter")
        return cell.locator(".jp-OutputArea-output")

    run(0)
    slider = opened.page.get_by_role("slider", name="update")
    slider.press("Home")
    expect(opened.view_with(slider).locator("figcaption")).to_contain_text("fp16 0 (0 %), bf16 0 (0 %)")
    expect(run(1)).to_contain_text("has ended by itself")
    cell = opened.page.locator(".jp-CodeCell").nth(1)
    cell.locator(".cm-line", has_text="seconds = 0").click()
    opened.page.keyboard.press("Home")
    for _ in "seconds = ":
        opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("Delete")
    opened.page.keyboard.type("30")
    said = run(1)
    expect(said).to_contain_text("Stop me: ")
    opened.page.keyboard.press("i")
    opened.page.keyboard.press("i")
    expect(said).to_contain_text("You stopped it.")
    expect(run(2)).to_contain_text("Python still knows `moved`")
    opened.page.evaluate(NOTE_RESTART)
    opened.page.keyboard.press("0")
    opened.page.keyboard.press("0")
    opened.page.locator(".jp-Dialog .jp-mod-accept").press("Enter")
    expect(opened.page.locator(".jp-Dialog")).to_have_count(0)
    opened.page.wait_for_function("window.ampRestarts")  # what is run from here on waits for the new kernel
    expect(run(2)).to_contain_text("You restarted")


LONG = "\n".join(f"# line {n}" for n in range(25))


def test_shift_enter_shows_the_view_whole_and_the_verdict_and_keeps_what_was_pressed(
    open_notebook, write_notebook
):
    check = 'views.check("loss_scaler", exercises.solution("loss_scaler").function)'
    asked = 'views.Quiz("scaling.floor")'
    imports = "from amp_lessons import exercises, views"
    opened = open_notebook(
        write_notebook(f"{imports}\n{LONG}\nviews.BitView()", LONG, check, LONG, asked, "2 + 2", "4", LONG)
    )
    opened.page.set_viewport_size({"width": 1280, "height": 800})
    cells = opened.page.locator(".jp-CodeCell")

    def run(number):
        cells.nth(number).locator(".cm-content").click()
        opened.page.keyboard.press("Shift+Enter")
        opened.wait_idle()
        return cells.nth(number)

    expect(run(0).locator(f"{LIVE} figure")).to_be_in_viewport(ratio=1)
    verdict = run(2).get_by_text("Your own loss scaler: passed")
    expect(verdict).to_be_in_viewport(ratio=1)
    quiz, answer = run(4), cells.nth(6).locator(".jp-InputArea")
    expect(answer).to_have_css("filter", "blur(5px)")
    quiz.get_by_role("button", name="b)").click()
    expect(quiz).to_contain_text("Yes.")
    expect(answer).to_have_css("filter", "none")
    expect(run(4)).to_contain_text("Yes.")
    assert opened.errors == []


def test_a_check_that_is_run_again_leaves_the_page_where_it_is(open_notebook, write_notebook):
    check = "from amp_lessons import views\nviews.check('largest_safe_scale', lambda gradients: 65504.0)"
    opened = open_notebook(write_notebook(LONG, LONG, check, "2 + 2", LONG, LONG))
    checks = opened.page.locator(".jp-CodeCell").nth(2)
    places = []
    for _ in range(3):
        checks.locator(".cm-content").click()
        opened.page.keyboard.press("Shift+Enter")
        opened.wait_idle()
        expect(checks).to_have_class(re.compile("amp-ran"))
        expect(checks.locator(".amp-report")).to_be_in_viewport(ratio=1)
        places.append(checks.bounding_box()["y"])
    assert places[1:] == pytest.approx(2 * places[:1], abs=5)


def test_the_map_names_the_next_step_on_the_route_that_is_chosen_by_keyboard(lesson):
    view = lesson.page.locator(".amp-map.jupyter-widgets")
    chosen = view.get_by_role("combobox", name="What brought you here?")
    chosen.focus()
    lesson.page.keyboard.press("m")  # "My loss is NaN now"
    expect(view).to_contain_text("Next on “My loss is NaN now”: lesson 06, “From a symptom to its cause”")
    expect(lesson.page.get_by_role("link", name="06, From a symptom to its cause").first).to_be_visible()
    expect(lesson.page.get_by_text("The cores take")).to_be_visible()
    chosen.select_option("I have one hour")
    assert lesson.serious_axe_violations(".amp-map") == []


def test_a_stop_on_a_route_leads_to_its_heading_and_the_end_of_the_lesson_on(lesson):
    heading = next(each.heading for each in minutes.sections("03") if each.id == "floor")
    tabs = lesson.page.locator(".lm-TabBar-tabLabel")
    lesson.page.get_by_role("link", name=heading).first.click()
    expect(tabs.filter(has_text="03_loss_scaling")).to_be_visible()
    expect(lesson.page.get_by_role("heading", name=heading)).to_be_in_viewport()
    tabs.filter(has_text="00_start_here").click()
    chosen = lesson.page.get_by_role("combobox", name="What brought you here?")
    chosen.select_option("The lessons in order")
    lesson.page.get_by_role("link", name="lesson 01 · Number formats").click()
    expect(tabs.filter(has_text="01_number_formats")).to_be_visible()
    expect(lesson.page.get_by_role("heading", name="01 · Number formats")).to_be_visible()
    tabs.filter(has_text="00_start_here").click()
