"""Lesson 03 as a learner uses it: by keyboard and by mouse, in JupyterLab in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons._base.text.words import power
from tests.browser.legible import expect_it_readable_narrow_and_dark
from tests.browser.next_morning import expect_it_the_next_morning, stand_ins
from tools.browser.jupyter_page import LIVE

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/03_loss_scaling.ipynb"
BUTTONS = ("Train 20 more steps", "Inject an overflow", "Start again", "Next phase")


@pytest.fixture
def live(lesson):
    """The view that runs a real backward pass for every move: the one with a slider for the loss scale."""
    return lesson.view_with(lesson.page.get_by_role("slider", name="Loss scale"))


def caption(view: Locator) -> Locator:
    return view.locator("figcaption")


def outlines(view: Locator) -> list[str]:
    """Return where the bars are drawn on the page, fate by fate."""
    return view.locator("svg [id^=amp-moving] path").evaluate_all(
        "paths => paths.map(p => p.getAttribute('d'))"
    )


def drawn(view: Locator, expected: list[str], timeout_s: float = 30.0) -> list[str]:
    """Return the outlines, once they are the expected ones: they reach the page after the caption."""
    deadline = time.monotonic() + timeout_s
    while outlines(view) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return outlines(view)


def computed(lesson, exponent, extra=""):
    """Return the caption that the compute layer gives for a scale, asked of the lesson's own kernel."""
    return lesson.evaluate(
        "from amp_lessons.course.views.widgets.loss_scale import describe\n"
        f"print(describe(scaling.backward_at(model, batches[0], loss_fn, 2.0**{exponent}{extra})))"
    )


def computed_outlines(lesson, exponent):
    """Return where the bars belong for a scale, on axes made for a scale of 1."""
    return lesson.evaluate(
        "from amp_lessons.course.views.widgets.loss_scale import CensusPicture\n"
        "from amp_lessons.course.views.base.moving import svg_outline\n"
        "picture = CensusPicture(scaling.backward_at(model, batches[0], loss_fn, 1.0))\n"
        f"picture.update(scaling.backward_at(model, batches[0], loss_fn, 2.0**{exponent}))\n"
        "print(*map(svg_outline, picture.moving), sep='\\n')"
    ).splitlines()


def test_the_slider_moved_by_keyboard_runs_a_backward_pass_and_redraws(lesson, live):
    slider = live.get_by_role("slider", name="Loss scale")
    for exponent, key in ((1, "ArrowRight"), (2, "ArrowRight"), (40, "End"), (0, "Home")):
        before = outlines(live)
        slider.press(key)
        expect(caption(live)).to_contain_text(f"Scale {power(2, exponent)}:")
        assert caption(live).inner_text() == computed(lesson, exponent)
        expected = computed_outlines(lesson, exponent)
        assert drawn(live, expected) == expected != before
        expect(live.get_by_role("img", name=f"Scale {power(2, exponent)}:")).to_be_visible()
    assert lesson.errors == []


def test_the_arrow_keys_stay_with_the_slider(lesson, live):
    slider = live.get_by_role("slider", name="Loss scale")
    slider.press("ArrowUp")
    expect(caption(live)).to_contain_text("Scale 2¹:")
    assert slider.evaluate("element => element === document.activeElement")
    slider.press("Home")


def test_a_typed_scale_is_understood_or_answered(lesson, live):
    typed = live.get_by_label("or type one")
    for text, answer in (
        ("2^10", "Scale 2¹⁰:"),
        ("2⁹", "Scale 2⁹:"),
        ("0", "positive"),
        ("abc", "number"),
        ("1000", "Scale 1000:"),
    ):
        typed.fill(text)
        typed.press("Enter")
        expect(live).to_contain_text(answer)
        expect(typed).to_have_attribute("aria-invalid", str(not answer.startswith("Scale")).lower())


def test_dtype_and_layer_are_chosen_by_name(lesson, live):
    live.get_by_role("slider", name="Loss scale").press("Home")
    live.get_by_label("dtype").select_option(label="bf16")
    lesson.wait_idle()
    expect(caption(live)).to_have_text(computed(lesson, 0, ", torch.bfloat16"))
    live.get_by_label("dtype").select_option(label="fp16")
    all_layers = computed(lesson, 0)
    expect(caption(live)).to_have_text(all_layers)
    live.get_by_label("layer").select_option(index=1)
    expect(caption(live)).not_to_have_text(all_layers)
    assert 0 < gradients_in(caption(live).inner_text()) < gradients_in(all_layers)
    live.get_by_label("layer").select_option(label="all layers")
    expect(caption(live)).to_have_text(all_layers)


def gradients_in(said):
    return int(re.search(r"of ([\d,]+) gradients", said)[1].replace(",", ""))


def test_every_button_of_the_scaler_does_what_it_says(lesson):
    view = lesson.view_with(lesson.button("Train 20 more steps"))
    expect(caption(view)).to_contain_text("40 steps")
    view.get_by_role("button", name="Train 20 more steps").click()
    expect(caption(view)).to_contain_text("60 steps")
    view.get_by_role("button", name="Inject an overflow").click()
    expect(caption(view)).to_contain_text("61 steps")
    expect(caption(view)).to_contain_text("0 clean steps of 10")
    view.get_by_role("button", name="Start again").click()
    expect(caption(view)).to_contain_text("40 steps")
    view.get_by_role("slider", name="init_scale").press("Home")
    expect(caption(view)).to_contain_text("from a scale of 2⁰: 0 skipped")
    view.get_by_role("slider", name="growth_interval").press("Home")
    expect(caption(view)).to_contain_text("of 1 towards")
    view.get_by_label("growth_factor").select_option(label="4.0")
    lesson.wait_idle()
    view.get_by_label("backoff_factor").select_option(label="0.25")
    lesson.wait_idle()
    assert lesson.errors == []


def test_the_cycle_walks_through_a_clean_step_and_a_skipped_one(lesson):
    view = lesson.view_with(lesson.button("Next phase"))
    following = view.get_by_role("button", name="Next phase")

    def press_until(text, most=8):
        for _ in range(most):
            before = caption(view).inner_text()
            following.press("Enter")
            expect(caption(view)).not_to_have_text(before)
            if text in caption(view).inner_text():
                return
        raise AssertionError(f"no phase said {text!r}")

    press_until("The forward pass ran")
    press_until("The optimizer stepped")
    press_until("The forward pass ran")
    view.get_by_role("button", name="Inject an overflow").click()
    expect(caption(view)).to_contain_text("will leave one inf")
    press_until("found at least one")
    press_until("The step was skipped")
    press_until("The scale was halved")
    assert lesson.errors == []


def test_it_can_be_read_on_a_narrow_page_and_on_a_dark_one(lesson):
    expect_it_readable_narrow_and_dark(lesson)


def test_the_next_morning_each_view_can_be_read_and_a_run_brings_its_controls_back(lesson, open_notebook):
    opened = expect_it_the_next_morning(lesson, open_notebook)
    first = stand_ins(opened).first
    opened.run_down_to(first)
    expect(first).to_be_hidden()
    expect(opened.page.locator(LIVE).first).to_be_visible()
    expect(stand_ins(opened).last).to_be_visible()
