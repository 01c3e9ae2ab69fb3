"""Pages that stand alone, of an audit and of the interview room: read by everybody, and printed on paper."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe

from amp_lessons import interview, views
from amp_lessons.course.interview.code_rounds import CodeRound
from tests.audit.report.samples import report
from tests.course.interview.test_mock import Clock, first_of, led

pytestmark = pytest.mark.thorough


def of_an_audit():
    """Return the page of an audit whose layers have names as long as those of a vision model of today."""
    layers = {f"stages.{i}.blocks.0.attention.projection.weight_norm": i for i in range(2)}
    known = list(report().layers.values())
    named = {name: replace(known[i], name=name) for name, i in layers.items()}
    return views.audit_page(replace(report(), layers=named))


def of_a_mock():
    mock = interview.Mock("senior", 45, 0, Clock())
    led(mock, first_of)
    return views.report_page(mock.report)


def of_a_round():
    coding = CodeRound(10, 1, "review")
    coding.hand_in_source(coding.task.answer, "mine.py")
    return views.report_page(coding.end())


PAGES = {
    "audit": of_an_audit,
    "sheet": lambda: views.sheet_page(interview.sheet()),
    "report": of_a_mock,
    "round": of_a_round,
}


def test_nobody_is_kept_out_and_nothing_is_asked_of_a_network(page):
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert Axe().run(page).response["violations"] == []
    assert [url for url in page.requests if not re.match("file:|data:", url)] == []
    scrolled, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scrolled <= shown, "the page itself scrolls sideways"


def test_all_there_is_to_scroll_or_to_open_is_reached_by_keyboard(page):
    stops = "[role=region], .amp-scroll, a"
    wanted = page.locator(f":is({stops}):not(details *), summary").count()  # what is folded, is hidden
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"document.activeElement.matches('summary, {stops}')"))
    assert reached == [True] * wanted


@pytest.fixture
def wide(browser, tmp_path):
    """Open one of the pages in a window of 1200 pixels."""
    with browser.new_context(viewport={"width": 1200, "height": 800}) as context:

        def open_(name):
            path = tmp_path / f"{name}.html"
            path.write_text(PAGES[name](), "utf-8")
            page = context.new_page()
            page.goto(path.as_uri())
            return page

        yield open_


TABLES = "[...document.querySelectorAll('[role=region]:has(table)')]"
WHOLE = f"{TABLES}.every((each) => each.scrollWidth <= each.clientWidth)"


def test_no_table_of_an_audit_runs_off_a_page_that_is_1200_pixels_wide(wide):
    page = wide("audit")
    assert page.evaluate(f"{TABLES}.length") == 4
    assert page.evaluate(WHOLE)
    told = page.locator("section:has(h2:text('Layers'))").inner_text()
    assert told.index("Lost updates: the fraction of the weights") < told.index("lost updates\n")


def test_nothing_of_the_sheet_is_cut_in_a_window_and_it_prints_on_one_side(wide):
    page = wide("sheet")
    for width in (700, 900, 1100, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate(WHOLE), f"something is cut at {width} px"
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 1050, "height": 720})  # A4 without its margins
    assert page.evaluate(WHOLE), "something is cut"
