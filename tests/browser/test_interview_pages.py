"""The pages of the interview room in a browser: read by everybody, and printed on paper."""

from __future__ import annotations

import re

import pytest
from axe_playwright_python.sync_playwright import Axe

from amp_lessons import interview, views
from amp_lessons.course.interview.code_rounds import CodeRound
from tests.course.interview.test_mock import Clock, first_of, led


def report():
    mock = interview.Mock("senior", 45, 0, Clock())
    led(mock, first_of)
    return mock.report


def of_a_round():
    coding = CodeRound(10, 1, "review")
    coding.hand_in_source(coding.task.answer, "mine.py")
    return coding.end()


pytestmark = pytest.mark.thorough

PAGES = {
    "sheet": lambda: views.sheet_page(interview.sheet()),
    "report": lambda: views.report_page(report()),
    "round": lambda: views.report_page(of_a_round()),
}


def test_nobody_is_kept_out_and_nothing_is_asked_of_a_network(page):
    assert Axe().run(page).response["violations"] == []
    assert [url for url in page.requests if not re.match("file:|data:", url)] == []
    scrolled, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scrolled <= shown, "the page itself scrolls sideways"


def test_nothing_of_the_sheet_is_cut_in_a_window_and_it_prints_on_one_side(browser, tmp_path):
    path = tmp_path / "sheet.html"
    path.write_text(PAGES["sheet"](), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    regions = "[...document.querySelectorAll('[role=region]')]"
    whole = f"{regions}.every(each => each.scrollWidth <= each.clientWidth)"
    for width in (700, 900, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(whole), f"something is cut at {width} px"
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1050, "height": 720})  # A4 without its margins
    assert page.evaluate(whole), "something is cut"
    page.close()
