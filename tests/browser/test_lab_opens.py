"""What ``amp-lessons lab`` promises: the first lesson, the repository as root, and no question about news."""

from __future__ import annotations

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook
from playwright.sync_api import expect

from amp_lessons.commands import lab
from tools.browser.jupyter_page import LabServer


@pytest.fixture
def learner(tmp_path, chromium):
    """A folder with a first lesson, served by the command itself."""
    first = tmp_path / "course" / lab.FIRST_NOTEBOOK
    first.parent.mkdir(parents=True)
    notebook = new_notebook(cells=[new_markdown_cell("# Start here")])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    nbformat.write(notebook, first)
    with LabServer(tmp_path / "course", tmp_path, command=True) as server:
        yield server


def test_it_opens_on_the_first_lesson_without_a_question_about_news(learner, browser):
    page = browser.new_page()
    page.goto(learner.url("/"))
    expect(page.get_by_role("heading", name="Start here")).to_be_visible(timeout=60_000)
    assert "/lab/tree/notebooks/00_start_here.ipynb" in page.url
    root = page.request.get(learner.url("/api/contents")).json()
    assert [entry["name"] for entry in root["content"]] == ["notebooks"]
    page.wait_for_timeout(3000)  # the question comes some time after the page
    assert page.get_by_text("official Jupyter news").count() == 0
    assert page.get_by_role("dialog").count() == 0
    page.close()


def test_without_the_token_nobody_gets_in(learner, browser):
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{learner.port}/lab")
    expect(page.get_by_text("Token authentication is enabled")).to_be_visible()
    page.close()
