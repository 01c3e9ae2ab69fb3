"""A page shows a view's controls if it can draw them and they have a kernel, and else what stands in."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.next_morning import AGAIN, ALONE, HOW, expect_what_stands_in, stand_ins

pytestmark = pytest.mark.thorough

SHOWN = {
    "view": "import torch\nfrom amp_lessons import views\nviews.CensusView(torch.logspace(-9, 3, 99))",
    "quiz": "views.Quiz('scaling.floor')",
    "card": "views.ExerciseCard('decode_bits')",
}


@pytest.fixture
def opened(open_notebook, write_notebook):
    """Open a notebook of these views in JupyterLab as it is, or ``without`` a part of it."""
    return lambda **without: open_notebook(write_notebook(*SHOWN.values()), **without)


NOTE_WHO_ASKS_WHERE_TAB_STOPS = """() => {
    const add = window.addEventListener.bind(window);
    window.asks = [];
    window.addEventListener = (type, listener, ...more) => {
        if (`${listener}`.includes("tabIndex")) window.asks.push(type);
        add(type, listener, ...more);
    };
}"""


def expect_controls_alone(notebook):
    expect(notebook.page.get_by_role("slider", name="Loss scale")).to_be_visible()
    expect(notebook.button("Hint 1")).to_be_visible()
    expect(notebook.page.locator(".amp-quiz .amp-choice")).to_have_count(3)
    expect(stand_ins(notebook)).to_have_count(len(SHOWN))
    for stand_in in stand_ins(notebook).all():
        expect(stand_in).to_be_hidden()


def test_a_picture_is_a_tab_stop_only_where_the_page_is_too_narrow_for_it(opened):
    notebook = opened()
    notebook.page.evaluate(NOTE_WHO_ASKS_WHERE_TAB_STOPS)
    notebook.run_all()
    last = notebook.page.get_by_label("layer", exact=True)
    picture = notebook.view_with(last).locator(".amp-scroll")
    for width, focused in ((800, True), (1280, False)):
        notebook.page.set_viewport_size({"width": width, "height": 1000})
        last.focus()
        notebook.page.keyboard.press("Tab")
        expect(last).not_to_be_focused()
        assert picture.evaluate("box => document.activeElement === box") is focused
        if focused:
            before = picture.evaluate("box => box.scrollLeft")
            picture.press("ArrowRight")
            notebook.page.wait_for_function(
                "([box, left]) => box.scrollLeft > left", arg=[picture.element_handle(), before]
            )
    # However many views there are, the page asks once.
    assert sorted(notebook.page.evaluate("window.asks")) == ["keydown", "resize"]


def test_controls_are_shown_alone_while_they_have_a_kernel(opened):
    """Not once it was restarted, again when the cells are run again, and not once it was shut down."""
    notebook = opened().run_all()
    expect_controls_alone(notebook)
    slider = notebook.page.get_by_role("slider", name="Loss scale")
    slider.press("ArrowRight")
    expect(notebook.view_with(slider).locator("figcaption")).to_contain_text("Scale 2¹:")
    notebook.restart()
    expect_what_stands_in(notebook, len(SHOWN))
    expect(slider).to_be_hidden()
    expect_controls_alone(notebook.run_all())
    assert notebook.errors == []
    notebook.end_kernel()
    expect_what_stands_in(notebook, len(SHOWN))
    expect(notebook.page.get_by_role("slider", name="Loss scale")).to_be_hidden()


def test_a_page_that_is_slow_shows_no_error_before_the_controls(opened):
    notebook = opened()
    devtools = notebook.page.context.new_cdp_session(notebook.page)
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": 8})
    seen = notebook.watch_for("Error displaying widget", "Loading widget")
    expect_controls_alone(notebook.run_all())
    devtools.send("Emulation.setCPUThrottlingRate", {"rate": 1})  # or it burns the processor while it is open
    assert seen() == []


SLOW = """
import anywidget, traitlets


class Slow(anywidget.AnyWidget):
    _esm = '''
        await new Promise((done) => setTimeout(done, 4000)); // as on a busy machine
        const render = ({ model, el }) => {
            const show = () => (el.textContent = model.get("said"));
            model.on("change:said", show);
            show();
        };
        export default { render };
    '''
    said = traitlets.Unicode("before").tag(sync=True)


slow = Slow()
slow
"""


def test_a_widget_whose_script_comes_late_hears_of_the_kernel(open_notebook, write_notebook):
    notebook = open_notebook(write_notebook(SLOW)).run_all()
    expect(notebook.page.get_by_text("before", exact=True)).to_be_visible()
    notebook.evaluate("slow.said = 'after'")
    expect(notebook.page.get_by_text("after", exact=True)).to_be_visible()
    assert notebook.errors == []


def test_a_page_that_has_lost_the_controls_shows_what_stands_in_until_it_is_loaded_again(opened):
    notebook = opened()
    notebook.lose_widgets()
    notebook.run_all()
    expect_what_stands_in(notebook, len(SHOWN))
    expect_controls_alone(notebook.reopen().run_all())


def test_a_page_that_cannot_draw_them_shows_what_stands_in_and_no_error(opened):
    notebook = opened(without="**/anywidget/**").run_all()
    expect_what_stands_in(notebook, len(SHOWN))
    view, quiz, card = stand_ins(notebook).all()
    expect(view.get_by_role("img")).to_be_visible()
    expect(view.locator("figcaption")).to_contain_text("Scale 2⁰:")
    quiz.get_by_text("Answer", exact=True).click()
    expect(quiz.locator("details")).to_have_attribute("open", "")
    card.get_by_text("Hint 1").click()
    expect(card.locator("details").filter(has_text="Hint 1")).to_have_attribute("open", "")
    shown = notebook.page.locator(".jp-Notebook").inner_text()
    assert [shown.count(each) for each in (ALONE, HOW, AGAIN)] == [1, 1, 1]
    assert "rror" not in shown
    assert "Failed" not in shown
    assert notebook.page.get_by_role("slider").count() == 0
    assert notebook.serious_axe_violations() == []
