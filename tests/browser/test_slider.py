"""A slider under a finger, alone on a page."""

from __future__ import annotations

import pytest

from amp_lessons.course.site.build import style, widget_scripts

RENDERED = """() => {
  window.state = { label: "Loss scale", min: 0, max: 3, value: 2, readouts: [], beyond: "", disabled: false };
  const heard = [];
  const set = (name, value) => ((state[name] = value), heard.forEach((each) => each()));
  const model = { get: (name) => state[name], on: (_, each) => heard.push(each), set, save_changes() {} };
  ampWidgets.Slider.render({ model, el: document.querySelector("main") });
}"""


@pytest.fixture
def open_slider(browser):
    """Open a page with a slider from 0 to 3 that stands at 2."""
    opened = []

    def open_(**options):
        opened.append(browser.new_context(**options))
        page = opened[-1].new_page()
        page.set_content(f"<main></main><style>{style()}</style>")
        page.add_script_tag(content=widget_scripts())
        page.evaluate(RENDERED)
        return page

    yield open_
    for each in opened:
        each.close()


def test_a_finger_moves_it_by_one_and_no_further_than_its_end(open_slider):
    page = open_slider(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    more = page.get_by_role("button", name="Loss scale: one more")
    values = []
    for button in (more, more, page.get_by_role("button", name="Loss scale: one less")):
        button.tap()
        values.append(page.evaluate("state.value"))
    assert values == [3, 3, 2]
    assert page.locator("output").inner_text() == "2"
    assert min(more.bounding_box()[side] for side in ("width", "height")) >= 44


@pytest.mark.parametrize(("across", "down", "value"), [(4, -300, 2), (-200, -4, 0)])
def test_a_finger_that_scrolls_the_page_leaves_it_as_it_was(open_slider, across, down, value):
    page = open_slider(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page.add_style_tag(content="body { height: 3000px; padding-top: 400px; }")
    box = page.locator("input").bounding_box()
    drag(page, box["x"] + 0.4 * box["width"], box["y"] + box["height"] / 2, across, down)
    assert page.evaluate("[state.value, scrollY > 0]") == [value, value == 2]


def drag(page, x, y, across, down):
    """Put a finger down at a place, draw it so far in ten moves, and lift it."""
    touch = page.context.new_cdp_session(page)
    for part in range(11):
        point = {"x": x + across * part / 10, "y": y + down * part / 10}
        kind = "touchMove" if part else "touchStart"
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
        page.wait_for_timeout(30)
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(300)


def test_a_mouse_sees_no_buttons(open_slider):
    assert open_slider().get_by_role("button").count() == 0
