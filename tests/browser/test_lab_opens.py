"""What ``amp-lessons lab`` promises: the first lesson, the learner's copy, and no question about news."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from amp_lessons import lessons
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


def test_nothing_was_run_and_whoever_only_looks_and_saves_has_touched_nothing(learner, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(learner.url("/lab/tree/00_start_here.ipynb"))
    expect(page.get_by_text("Run this cell (Shift+Enter) to answer a question.").first).to_be_visible(
        timeout=60_000
    )
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.locator("img").count() == 0
    assert outputs.filter(has_text="[measured]").count() == 0
    lesson = learner.root / "00_start_here.ipynb"
    before = lesson.stat().st_mtime_ns
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    assert lesson.stat().st_mtime_ns != before
    page.close()
    assert lessons.reset(learner.root, lessons.originals(), "00").kept is None


def test_without_the_token_nobody_gets_in(learner, browser):
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{learner.port}/lab")
    expect(page.get_by_text("Token authentication is enabled")).to_be_visible()
    page.close()
