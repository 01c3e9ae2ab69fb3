"""What is deeper is folded away in JupyterLab, opens by keyboard, and is run with the rest."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from playwright.sync_api import expect

from tests.notebook_rules import FOLDED


@pytest.fixture
def folded(course, open_notebook):
    """A lesson with one deeper section, as a learner opens it."""
    heading = new_markdown_cell(
        "## Deeper: why?\n\n**5 minutes**. For those who ask.", metadata={FOLDED: True}
    )
    cells = [
        new_code_cell("core = 1"),
        heading,
        new_code_cell("deeper = core"),
        new_markdown_cell("*The end.*"),
    ]
    notebook = new_notebook(cells=cells)
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    nbformat.write(notebook, course / "notebooks" / "folded.ipynb")
    return open_notebook("notebooks/folded.ipynb", unfolded=False)


def test_what_is_deeper_is_folded_opens_by_keyboard_and_is_run_all_the_same(folded):
    heading, below = (
        folded.page.get_by_role("heading", name="Deeper: why?"),
        folded.page.locator(".jp-CodeCell").nth(1),
    )
    expect(heading).to_be_visible()
    expect(below).to_be_hidden()
    expect(folded.page.locator("em")).to_be_hidden()
    folded.run_all()
    assert folded.evaluate("print(deeper)") == "1"
    expect(below).to_be_hidden()
    heading.click()
    folded.page.keyboard.press("ArrowRight")
    expect(below).to_be_visible()
