"""The pages of the interview room in a browser: read by everybody, and printed on paper."""

from __future__ import annotations

import re

from axe_playwright_python.sync_playwright import Axe

from amp_lessons import interview, views


def report():
    mock = interview.Mock("senior", 45, 0)
    while mock.asked is not None:
        if mock.asked.kind == "question":
            mock.answer(0)
        elif mock.asked.kind == "estimate":
            mock.guess(0)
        else:
            mock.hand_in(False)
    return mock.report


PAGES = {"sheet": lambda: views.sheet_page(interview.sheet()), "report": lambda: views.report_page(report())}


def test_nobody_is_kept_out_and_nothing_is_asked_of_a_network(page):
    assert Axe().run(page).response["violations"] == []
    assert [url for url in page.requests if not re.match("file:|data:", url)] == []


def test_the_page_itself_never_scrolls_sideways(page):
    scrolled, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scrolled <= shown


def test_the_sheet_prints_on_one_side(browser, tmp_path):
    path = tmp_path / "sheet.html"
    path.write_text(PAGES["sheet"](), "utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1050, "height": 720})  # A4 without its margins
    regions = "[...document.querySelectorAll('[role=region]')]"
    assert page.evaluate(f"{regions}.every(each => each.scrollWidth <= each.clientWidth)"), "something is cut"
    page.close()
