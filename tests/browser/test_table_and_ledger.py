"""A searched table that scrolls, and a slider whose end moves: the atlas and the ledger of lesson 02."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tools.browser.jupyter_page import OUTPUTS

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/02_autocast.ipynb"
FIRST = ("perceptron", "CUDA", "fp16")
DTYPES = {"fp16": "torch.float16", "bf16": "torch.bfloat16", "fp32, no autocast": "None"}


@pytest.fixture
def atlas(lesson) -> Locator:
    return lesson.view_with(lesson.page.locator(OUTPUTS).get_by_label("search", exact=True))


@pytest.fixture
def ledger(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Operation"))


def search(atlas, text):
    field = atlas.get_by_label("search", exact=True)
    field.fill(text)
    field.press("Enter")


def expect_names(atlas, names):
    expect(atlas.get_by_role("rowheader")).to_have_text(names)


def sentence(atlas):
    return atlas.locator(".widget-html p[aria-live]")


def computed_names(lesson, arguments):
    """Return the operations that the compute layer finds, asked of the lesson's own kernel."""
    return lesson.evaluate(f"print(*[o.name for o in autocast.operations({arguments})])").split()


def expect_row(lesson, ledger, chosen, row=0, rows="forward"):
    """Expect what the compute layer's ledger says of row number ``row``, counted back from the last."""
    network, rules, dtype = chosen
    expected = lesson.evaluate(
        "from amp_lessons.course.views.widgets.ledger import describe\n"
        f"rows = networks[{network!r}](device_type={rules.lower()!r}, dtype={DTYPES[dtype]}).{rows}\n"
        f"print(describe(rows[:{row} or None], len(rows)))"
    ).strip()
    whose = "No rules of autocast apply." if DTYPES[dtype] == "None" else f"By the rules of {rules}."
    expect(ledger.locator("figcaption")).to_have_text(f"{expected} {whose}")


def choose(ledger, network, rules, dtype):
    for label, choice in (("network", network), ("rules of", rules), ("dtype", dtype)):
        ledger.get_by_label(label).select_option(label=choice)


def test_typing_a_name_explains_it_and_lists_what_contains_it(lesson, atlas):
    for text in ("softmax", "norm", "mul"):
        search(atlas, text)
        explained = lesson.evaluate(f"print(autocast.explain({text!r}))")
        expect(sentence(atlas)).to_contain_text(explained)
        expect_names(atlas, computed_names(lesson, repr(text)))
    assert lesson.errors == []


def test_the_table_fits_beside_the_file_browser_and_scrolls_by_keyboard(lesson, atlas):
    search(atlas, "")
    region = atlas.get_by_role("region", name="Table of operations")
    assert region.evaluate("each => each.scrollWidth <= each.clientWidth")
    region.focus()
    lesson.page.keyboard.press("PageDown")
    lesson.page.wait_for_function("element => element.scrollTop > 0", arg=region.element_handle())


def test_the_backward_pass_can_be_stepped_through(lesson, ledger):
    choose(ledger, *FIRST)
    expect_row(lesson, ledger, FIRST)  # chosen at once, 32 of 39 rows once stayed
    ledger.get_by_label("pass").select_option(label="forward and backward")
    expect_row(lesson, ledger, FIRST, rows="rows")  # all is recorded, and the slider stands at the end
    slider = ledger.get_by_role("slider", name="Operation")
    for row in (-1, -2, -3):
        slider.press("ArrowLeft")
        expect_row(lesson, ledger, FIRST, row, rows="rows")
    ledger.get_by_label("pass").select_option(label="forward")
    expect_row(lesson, ledger, FIRST)
