"""What ``amp-lessons lab`` promises: the first lesson, the learner's copy, and no question about news."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tools.browser.jupyter_page import REPOSITORY, LabServer

NOTEBOOKS = list((REPOSITORY / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def learner(tmp_path_factory, chromium):
    """An empty folder, made a copy of the lessons and served by the command itself."""
    folder = tmp_path_factory.mktemp("learner") / "lessons"
    folder.mkdir()
    with LabServer(folder, tmp_path_factory.mktemp("jupyter"), command=True) as server:
        yield server


def test_it_opens_on_the_first_lesson_without_a_question_about_news(learner, browser):
    page = browser.new_page()
    page.goto(learner.url("/"))
    expect(page.get_by_role("heading", name="Start here")).to_be_visible(timeout=60_000)
    assert "/lab/tree/00_start_here.ipynb" in page.url
    root = page.request.get(learner.url("/api/contents")).json()
    assert {entry["name"] for entry in root["content"]} == {path.name for path in NOTEBOOKS} | {"AGENTS.md"}
    page.wait_for_timeout(3000)  # the question comes some time after the page
    assert page.get_by_text("official Jupyter news").count() == 0
    assert page.get_by_role("dialog").count() == 0
    page.close()


def test_without_the_token_nobody_gets_in(learner, browser):
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{learner.port}/lab")
    expect(page.get_by_text("Token authentication is enabled")).to_be_visible()
    page.close()
