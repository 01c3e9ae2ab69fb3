"""The tools of the browser tests see what a learner sees, and they see what is wrong."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect

import amp_lessons
from tests.browser.seen_cells import only_what_is_seen

LIVE = """
import ipywidgets as widgets
exponent = widgets.IntSlider(10, 0, 40, description="Scale 2^")
typed = widgets.BoundedIntText(10, 0, 40, description="Exponent")
again = widgets.Button(description="Start again")
shown = widgets.HTML("<p>scale 1024</p>")
widgets.link((exponent, "value"), (typed, "value"))
exponent.observe(lambda change: setattr(shown, "value", f"<p>scale {2 ** change.new}</p>"), "value")
again.on_click(lambda button: setattr(exponent, "value", 10))
widgets.VBox([exponent, typed, again, shown])
"""


@pytest.mark.thorough
def test_a_slider_moved_by_keyboard_changes_what_is_shown(open_notebook, write_notebook, tmp_path):
    notebook = open_notebook(write_notebook(LIVE)).run_all()
    shown = notebook.page.locator(".widget-html p")
    expect(shown).to_have_text("scale 1024")
    notebook.slider("Scale 2^").press("ArrowRight")
    expect(shown).to_have_text("scale 2048")
    notebook.widget("Exponent").locator("input").fill("3")
    notebook.widget("Exponent").locator("input").press("Enter")
    expect(shown).to_have_text("scale 8")
    notebook.button("Start again").click()
    notebook.wait_idle()
    expect(shown).to_have_text("scale 1024")
    assert notebook.errors == []
    assert notebook.screenshot(tmp_path / "live.png").stat().st_size > 10_000
    # The handles of ipywidgets' sliders have no accessible name, which is why a typed number goes with each.
    assert {line.split(":")[0] for line in notebook.serious_axe_violations()} == {"aria-input-field-name"}


SQUARE = """
from IPython.display import HTML
HTML('<svg role="img" aria-label="a square" width="20" height="20"><rect width="20" height="20"/></svg>')
"""
NAMELESS = SQUARE.replace('aria-label="a square"', 'class="nameless"')
WHERE = "import amp_lessons, os; print(amp_lessons.__file__, os.getcwd(), os.environ['AMP_LESSONS_HOME'])"
COMPLAINS = """
from IPython.display import Javascript
Javascript('''console.error("complaint");
setTimeout(() => { window.ampThrew = true; throw new Error("broken page"); });''')
"""


@pytest.mark.thorough
def test_a_page_with_much_that_is_wrong_is_not_overlooked(open_notebook, write_notebook):
    notebook = open_notebook(write_notebook(SQUARE, WHERE, NAMELESS, COMPLAINS, "1 / 0"))
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        notebook.run_all()
    printed = notebook.page.locator(".jp-OutputArea-output").filter(has_text="amp_lessons").first
    package, folder, home = printed.inner_text().split()
    assert package == amp_lessons.__file__
    assert folder == str(notebook.server.root / "notebooks")
    assert home.startswith(str(notebook.server.log.parent))
    notebook.page.wait_for_function("window.ampThrew")  # after the console's complaint
    assert any("complaint" in error for error in notebook.errors)
    assert any("broken page" in error for error in notebook.errors)
    (violation,) = notebook.serious_axe_violations(".jp-OutputArea-output svg")
    assert violation.startswith("svg-img-alt")
    assert violation.endswith(".nameless")
    with pytest.raises(AssertionError, match="nothing on the page"):
        notebook.serious_axe_violations(".not-there")


def test_a_lesson_keeps_its_views_and_what_they_need():
    sources = [
        "import torch\nfrom amp_lessons import views",
        "scale = 2**10",
        "for _ in range(10**6):\n    slow = torch.ones(1)\nassert slow",
        "def loss_fn(outputs):\n    return outputs * scale",
        "views.LossScaleView(loss_fn)",
        "views.Play('never needed', later)",
        "later = 1",
    ]
    notebook = new_notebook(cells=[new_markdown_cell("# Text"), *map(new_code_cell, sources)])
    kept = [cell.source for cell in only_what_is_seen(notebook).cells]
    assert kept == ["# Text", *sources[:2], *sources[3:6]]
