"""A picture whose bars move on the page, and a real backward pass for each move: lesson 03."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import Locator, expect

from amp_lessons._base.text.words import power

pytestmark = pytest.mark.thorough

NOTEBOOK = "notebooks/03_loss_scaling.ipynb"


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
