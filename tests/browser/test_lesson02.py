"""Lesson 02 as a learner uses it: by keyboard and by mouse, in JupyterLab in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

NOTEBOOK = "notebooks/02_autocast.ipynb"
DTYPES = {"fp16": "torch.float16", "bf16": "torch.bfloat16", "fp32, no autocast": "None"}


@pytest.fixture
def atlas(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_label("search"))


@pytest.fixture
def ledger(lesson) -> Locator:
    return lesson.view_with(lesson.page.get_by_role("slider", name="Operation"))


def search(lesson, atlas, text):
    atlas.get_by_label("search").fill(text)
    atlas.get_by_label("search").press("Enter")
    lesson.wait_idle()


def names(atlas):
    return atlas.get_by_role("rowheader").all_inner_texts()


def sentence(atlas):
    return atlas.locator("p[aria-live]")


def computed_names(lesson, arguments):
    """Return the operations that the compute layer finds, asked of the lesson's own kernel."""
    return lesson.evaluate(f"print(*[o.name for o in autocast.operations({arguments})])").split()


def caption(ledger):
    return ledger.locator("figcaption")


def computed_caption(lesson, network, rules, dtype, row, rows="forward"):
    """Return what the compute layer's ledger says of a row."""
    return lesson.evaluate(
        "from amp_lessons.views.widgets.ledger import describe\n"
        f"rows = networks[{network!r}](device_type={rules.lower()!r}, dtype={DTYPES[dtype]}).{rows}\n"
        f"print(describe(rows[:{row}], len(rows)))"
    )


def test_typing_a_name_explains_it_and_lists_what_contains_it(lesson, atlas):
    for text in ("softmax", "norm", "mul"):
        search(lesson, atlas, text)
        expect(sentence(atlas)).to_contain_text(
            lesson.evaluate(f"print(autocast.explain({text!r}))"), use_inner_text=True
        )
        assert names(atlas) == computed_names(lesson, repr(text))
    assert lesson.errors == []


def test_a_name_that_does_not_exist_is_answered_with_the_nearest(lesson, atlas):
    search(lesson, atlas, "sofmax")
    expect(sentence(atlas)).to_contain_text("nearest: softmax")
    assert names(atlas) == []
    search(lesson, atlas, "")
    assert names(atlas) == computed_names(lesson, "")


def test_rule_device_and_difference_filter_the_table(lesson, atlas):
    search(lesson, atlas, "")
    atlas.get_by_label("rule").select_option(label="banned")
    lesson.wait_idle()
    assert names(atlas) == ["binary_cross_entropy"]
    atlas.get_by_label("rule").select_option(label="lower precision")
    atlas.get_by_label("on", exact=True).select_option(label="CPU")
    atlas.get_by_label("show").select_option(label="only where CUDA and CPU differ")
    lesson.wait_idle()
    expected = computed_names(lesson, "rule='lower precision', device_type='cpu', differing=True")
    assert names(atlas) == expected
    assert expected
    atlas.get_by_label("rule").select_option(label="any")
    atlas.get_by_label("show").select_option(label="all operations")
    lesson.wait_idle()


def test_the_table_scrolls_by_keyboard(lesson, atlas):
    search(lesson, atlas, "")
    region = atlas.get_by_role("region", name="Table of operations")
    region.focus()
    lesson.page.keyboard.press("PageDown")
    lesson.page.wait_for_function("element => element.scrollTop > 0", arg=region.element_handle())


def test_casts_appear_row_by_row(lesson, ledger):
    slider = ledger.get_by_role("slider", name="Operation")
    picture = ledger.locator("img")
    slider.press("Home")
    lesson.wait_idle()
    for row in (1, 2, 3, 4):
        assert caption(ledger).inner_text() == computed_caption(lesson, "exercise MLP", "CUDA", "fp16", row)
        before = picture.get_attribute("src")
        slider.press("ArrowRight")
        lesson.wait_idle()
        assert picture.get_attribute("src") != before
    assert slider.evaluate("element => element === document.activeElement")
    assert lesson.errors == []


@pytest.mark.parametrize("network", ["conv net with BatchNorm", "transformer block"])
@pytest.mark.parametrize(
    ("rules", "dtype"), [("CUDA", "bf16"), ("CPU", "fp16"), ("CPU", "fp32, no autocast")]
)
def test_network_rules_and_dtype_are_chosen_by_name(lesson, ledger, network, rules, dtype):
    for label, choice in (("network", network), ("rules of", rules), ("dtype", dtype)):
        ledger.get_by_label(label).select_option(label=choice)
    lesson.wait_idle()
    row = int(ledger.get_by_role("slider").input_value())
    assert caption(ledger).inner_text() == computed_caption(lesson, network, rules, dtype, row)
    assert caption(ledger).inner_text().startswith(f"{row} of {row}:")


def test_the_backward_pass_can_be_stepped_through(lesson, ledger):
    for label, choice in (("network", "exercise MLP"), ("rules of", "CUDA"), ("dtype", "fp16")):
        ledger.get_by_label(label).select_option(label=choice)
    ledger.get_by_label("pass").select_option(label="forward and backward")
    lesson.wait_idle()
    ledger.get_by_role("slider").press("ArrowLeft")
    lesson.wait_idle()
    row = int(ledger.get_by_role("slider").input_value())
    expected = computed_caption(lesson, "exercise MLP", "CUDA", "fp16", row, "rows")
    assert caption(ledger).inner_text() == expected
    assert "(backward)" in expected


def test_a_question_is_answered_by_keyboard(lesson):
    wrong = lesson.page.get_by_role("button", name="fp32, on every device")
    wrong.press("Enter")
    quiz = lesson.view_with(wrong)
    expect(quiz).to_contain_text("Not quite.")
    quiz.get_by_role("button", name="b)").press("Enter")
    expect(quiz).to_contain_text("Yes.")


def test_nothing_of_ours_keeps_anyone_out(lesson):
    assert lesson.serious_axe_violations() == []
    assert lesson.errors == []
