"""A notebook that was run and saved, opened again with a kernel that has run nothing of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from playwright.sync_api import Locator, expect

from tests.browser.legible import unreadable
from tools.browser.jupyter_page import LIVE, NotebookPage

HOW = "To get the controls, click here, then menu Run, Run All Above Selected Cell, then Shift+Enter."
AGAIN = "Controls: Run All Above, then Shift+Enter"
ALONE = "Controls: click here, then Shift+Enter"  # in a cell that needs none above it
JUPYTERS_OWN = ("Error displaying widget", "Loading widget", "model not found")


def expect_it_the_next_morning(
    lesson: NotebookPage, open_notebook: Callable[..., NotebookPage]
) -> NotebookPage:
    """Save a lesson that was run, and open a copy of it: each view can be read. Return the copy."""
    shown = lesson.page.locator(LIVE).count()
    assert shown, "the lesson shows no view"
    lesson.save()
    copy = lesson.path.replace(".ipynb", "_the_next_morning.ipynb")
    shutil.copy(lesson.server.root / lesson.path, lesson.server.root / copy)
    opened = open_notebook(copy)
    expect_what_stands_in(opened, shown)
    return opened


def expect_what_stands_in(notebook: NotebookPage, number: int) -> None:
    """Expect ``number`` views as something to read; the first that needs cells above says how to run them."""
    expect(stand_ins(notebook)).to_have_count(number)
    assert unreadable(notebook, {}) == []
    how = HOW
    for stand_in in stand_ins(notebook).all():
        expect(stand_in).to_be_visible()
        if not stand_in.inner_text().startswith(ALONE):
            assert stand_in.inner_text().startswith(how)
            how = AGAIN
        assert stand_in.inner_text().count("\n") > 1, "there is nothing to read"
    seen = notebook.page.locator(".jp-Notebook").inner_text()
    assert [words for words in JUPYTERS_OWN if words in seen] == []


def stand_ins(notebook: NotebookPage) -> Locator:
    """Return what stands in for the notebook's views, one by one."""
    return notebook.page.locator("[class^=amp-stand-in]")
