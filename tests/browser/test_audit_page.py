"""The page of an audit in a browser: wide and narrow, light and dark, by keyboard."""

from __future__ import annotations

import re

from axe_playwright_python.sync_playwright import Axe

from amp_lessons import views
from tests.audit.report.samples import report

PAGES = {"audit": lambda: views.audit_page(report())}


def test_nobody_is_kept_out_and_nothing_is_asked_of_a_network(page):
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert Axe().run(page).response["violations"] == []
    assert [url for url in page.requests if not re.match("file:|data:", url)] == []


def test_the_page_itself_never_scrolls_sideways(page):
    widths = "[document.documentElement.scrollWidth, innerWidth]"
    scrolled, shown = page.evaluate(widths)
    assert scrolled <= shown


def test_all_there_is_to_scroll_or_to_open_is_reached_by_keyboard(page):
    scrolls = "[role=region], .amp-scroll"
    wanted = page.locator(f":is({scrolls}):not(details *), summary").count()  # what is folded, is hidden
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"document.activeElement.matches('summary, {scrolls}')"))
    assert reached == [True] * wanted
