"""JupyterLab in headless Chromium, for tests that do what a learner does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Page, expect

from amp_lessons.lessons import shipped
from tests.browser.seen_cells import only_what_is_seen
from tools.browser.jupyter_page import REPOSITORY, LabServer, NotebookPage

# What must come comes within the time of a busy machine; five seconds, the default, were once too few on one.
expect.set_options(timeout=20_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and allow for the start of JupyterLab and a kernel."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="session")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``notebooks/`` in it, for the notebooks that are opened, to run and write beside."""
    root = tmp_path_factory.mktemp("course")
    (root / "notebooks").mkdir()
    return root


def bring(course: Path, path: str) -> None:
    """Put what is seen of one of the course's notebooks into that folder."""
    if not (course / path).exists():
        nbformat.write(only_what_is_seen(nbformat.read(REPOSITORY / path, 4)), course / path)


@pytest.fixture(scope="session")
def all_lessons(course: Path) -> None:
    """All of the course's notebooks in that folder: where links lead."""
    for head in shipped.heads():
        bring(course, f"notebooks/{head.file}")


@pytest.fixture(scope="session")
def lab_server(chromium: str, course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """JupyterLab on that folder."""
    with LabServer(course, tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="module")
def write_notebook(course: Path) -> Iterator[Callable[..., str]]:
    """Add a notebook with these cells to the served course; return its path there."""
    written = []

    def write(name: str, *sources: str) -> str:
        path = course / "notebooks" / name
        notebook = new_notebook(cells=[new_code_cell(source.strip()) for source in sources])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
        nbformat.write(notebook, path)
        written.append(path)
        return f"notebooks/{name}"

    yield write
    for path in written:
        path.unlink()


@contextmanager
def _windows(browser: Browser, server: LabServer, course: Path) -> Iterator[Callable[..., NotebookPage]]:
    contexts = []

    def open_(path: str, without: str = "", unfolded: bool = True) -> NotebookPage:
        bring(course, path)
        contexts.append(browser.new_context(viewport={"width": 1280, "height": 1000}))
        page = contexts[-1].new_page()
        if without:
            page.route(without, lambda route: route.abort())
        return NotebookPage(page, server).open(path, unfolded)

    yield open_
    for context in contexts:
        context.close()
    server.end_kernels()


@pytest.fixture(scope="module")
def open_notebook(
    browser: Browser, lab_server: LabServer, course: Path
) -> Iterator[Callable[..., NotebookPage]]:
    """Open a notebook by its path, ``notebooks/03_loss_scaling.ipynb`` say, in a window of its own.

    What the page asks for from addresses that match the glob ``without`` does not reach it. What is deeper is
    unfolded, unless it shall stay as it is for a learner.
    """
    with _windows(browser, lab_server, course) as open_:
        yield open_


@pytest.fixture(scope="module")
def lesson(
    request: pytest.FixtureRequest, browser: Browser, lab_server: LabServer, course: Path
) -> Iterator[NotebookPage]:
    """The module's ``NOTEBOOK``, open and run once for all of its tests."""
    with _windows(browser, lab_server, course) as open_:
        yield open_(request.module.NOTEBOOK).run_all()


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Where one of the module's ``PAGES`` was written: names, and what makes the HTML of each."""
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(request.module.PAGES[request.param](), "utf-8")
    return path.as_uri()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what asks for ``address``, or for a page there, with each of the module's ``PAGES``."""
    if "address" in metafunc.fixturenames:
        metafunc.parametrize("address", metafunc.module.PAGES, indirect=True, scope="module")


@pytest.fixture(params=[(1200, "light"), (390, "dark")], ids=["wide, light", "narrow, dark"])
def page(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """One of the module's ``PAGES`` in a window; ``requests`` are the addresses that it asks for."""
    width, scheme = request.param
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.requests = []
    page.on("request", lambda asked: page.requests.append(asked.url))
    page.goto(address)
    yield page
    page.close()
