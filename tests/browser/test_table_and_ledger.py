"""A searched table that scrolls, and a slider whose end moves: the atlas and the ledger of lesson 02."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tools.browser.jupyter_page import OUTPUTS

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/02_autocast.ipynb"


def test_a_table_is_searched_fits_beside_the_file_browser_and_scrolls_by_keyboard(lesson):
    atlas = lesson.view_with(lesson.page.locator(OUTPUTS).get_by_label("search", exact=True))
    field = atlas.get_by_label("search", exact=True)
    for text in ("softmax", ""):
        field.fill(text)
        field.press("Enter")
        names = lesson.evaluate(f"print(*[each.name for each in autocast.operations({text!r})])").split()
        expect(atlas.get_by_role("rowheader")).to_have_count(len(names))
        if text:
            expect(atlas.locator(".widget-html p[aria-live]")).to_contain_text(
                lesson.evaluate(f"print(autocast.explain({text!r}))")
            )
    region = atlas.get_by_role("region", name="Table of operations")
    assert region.evaluate("each => each.scrollWidth <= each.clientWidth")
    region.focus()
    lesson.page.keyboard.press("PageDown")
    lesson.page.wait_for_function("element => element.scrollTop > 0", arg=region.element_handle())
    assert lesson.errors == []


def expect_row(lesson, ledger, rows, row=0):
    """Expect what the compute layer's ledger says of row number ``row``, counted back from the last."""
    expected = lesson.evaluate(
        "from amp_lessons.course.views.widgets.ledger import describe\n"
        f"rows = networks['perceptron'](device_type='cuda', dtype=torch.float16).{rows}\n"
        f"print(describe(rows[:{row} or None], len(rows)))"
    ).strip()
    expect(ledger.locator("figcaption")).to_have_text(f"{expected} By the rules of CUDA.")


def test_a_slider_whose_end_moves_stands_there_and_can_be_stepped_back(lesson):
    ledger = lesson.view_with(lesson.page.get_by_role("slider", name="Operation"))
    for label, choice in (("network", "perceptron"), ("rules of", "CUDA"), ("dtype", "fp16")):
        ledger.get_by_label(label).select_option(label=choice)
    expect_row(lesson, ledger, "forward")  # chosen at once, 32 of 39 rows once stayed
    ledger.get_by_label("pass").select_option(label="forward and backward")
    expect_row(lesson, ledger, "rows")
    for row in (-1, -2):
        ledger.get_by_role("slider", name="Operation").press("ArrowLeft")
        expect_row(lesson, ledger, "rows", row)
    ledger.get_by_label("pass").select_option(label="forward")
    expect_row(lesson, ledger, "forward")
