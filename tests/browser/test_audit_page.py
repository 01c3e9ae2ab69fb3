"""The page of an audit in a browser: wide and narrow, light and dark, by keyboard."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe

from amp_lessons import views
from tests.audit.report.samples import report


def named_at_length():
    """Make a report whose layers have names as long as those of a vision model of today."""
    layers = {f"stages.{i}.blocks.0.attention.projection.weight_norm": i for i in range(2)}
    known = list(report().layers.values())
    return replace(report(), layers={name: replace(known[i], name=name) for name, i in layers.items()})


pytestmark = pytest.mark.thorough

PAGES = {"audit": lambda: views.audit_page(named_at_length())}


def test_nobody_is_kept_out_and_nothing_is_asked_of_a_network(page):
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert Axe().run(page).response["violations"] == []
    assert [url for url in page.requests if not re.match("file:|data:", url)] == []
    scrolled, shown = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert scrolled <= shown, "the page itself scrolls sideways"


def test_no_table_runs_off_a_page_that_is_1200_pixels_wide(page):
    page.set_viewport_size({"width": 1200, "height": 800})
    runs_off = "each => each.scrollWidth > each.clientWidth"
    tables = page.locator("[role=region]:has(table)")
    assert tables.count() == 4
    assert tables.evaluate_all(f"all => all.filter({runs_off}).length") == 0
    told = page.locator("section:has(h2:text('Layers'))").inner_text()
    assert told.index("Lost updates: the fraction of the weights") < told.index("lost updates\n")


def test_all_there_is_to_scroll_or_to_open_is_reached_by_keyboard(page):
    stops = "[role=region], .amp-scroll, a"
    wanted = page.locator(f":is({stops}):not(details *), summary").count()  # what is folded, is hidden
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(f"document.activeElement.matches('summary, {stops}')"))
    assert reached == [True] * wanted
