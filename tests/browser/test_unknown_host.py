"""A page of which nobody knows beforehand what it draws shows controls if it can, and else what stands in."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

KAGGLE = "import os\nos.environ['KAGGLE_KERNEL_RUN_TYPE'] = 'Interactive'"
SHOWN = {
    "view": "import torch\nfrom amp_lessons import views\nviews.CensusView(torch.logspace(-9, 3, 99))",
    "quiz": "views.Quiz('scaling.floor')",
    "card": "views.ExerciseCard('decode_bits')",
}


@pytest.fixture
def opened(open_notebook, write_notebook):
    """Run these views on an unknown host, in JupyterLab as it is or ``without`` a part of it."""

    def run(name, **without):
        return open_notebook(write_notebook(name, KAGGLE, *SHOWN.values()), **without).run_all()

    return run


def stand_ins(notebook):
    return notebook.page.locator("[class^=amp-stand-in]")


def test_a_page_that_draws_controls_shows_them_alone(opened):
    notebook = opened("controls.ipynb")
    slider = notebook.page.get_by_role("slider", name="Loss scale")
    expect(slider).to_be_visible()
    slider.press("ArrowRight")
    expect(notebook.view_with(slider).locator("figcaption")).to_contain_text("Scale 2^1:")
    expect(notebook.button("Hint 1")).to_be_visible()
    expect(notebook.page.locator(".amp-quiz").get_by_role("button")).to_have_count(3)
    expect(stand_ins(notebook)).to_have_count(len(SHOWN))
    for stand_in in stand_ins(notebook).all():
        expect(stand_in).to_be_hidden()
    assert notebook.errors == []


def test_a_page_that_cannot_draw_them_shows_what_stands_in_and_no_error(opened):
    notebook = opened("stand_in.ipynb", without="**/anywidget/**")
    view, quiz, card = stand_ins(notebook).all()
    expect(view.get_by_role("img")).to_be_visible()
    expect(view.locator("figcaption")).to_contain_text("Scale 2^0:")
    quiz.get_by_text("Answer", exact=True).click()
    expect(quiz.locator("details")).to_have_attribute("open", "")
    card.get_by_text("Hint 1").click()
    expect(card.locator("details").first).to_have_attribute("open", "")
    shown = notebook.page.locator(".jp-Notebook").inner_text()
    assert "rror" not in shown
    assert "Failed" not in shown
    assert notebook.page.get_by_role("slider").count() == 0
    assert notebook.serious_axe_violations() == []
