"""JupyterLab in headless Chromium, for tests that do what a learner does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser, Page

from amp_lessons.course.lessons import shipped
from tests.browser.seen_cells import only_what_is_seen
from tools.browser.chromium import PATIENCE_MS
from tools.browser.jupyter_page import REPOSITORY, LabServer, NotebookPage


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and allow for the start of JupyterLab and a kernel."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session")
def lab_server(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    """JupyterLab on a learner's copy, started once for all tests of this process."""
    with LabServer(tmp_path_factory.mktemp("lessons"), tmp_path_factory.mktemp("jupyter")) as server:
        yield server


@pytest.fixture(scope="module")
def course(lab_server: LabServer) -> Iterator[Path]:
    """The folder that JupyterLab serves, with ``notebooks/`` for a file of tests: the next one finds none."""
    (lab_server.root / "notebooks").mkdir()
    yield lab_server.root
    lab_server.forget()


def bring(course: Path, path: str) -> None:
    """Put what is seen of one of the course's notebooks into that folder."""
    if not (course / path).exists():
        nbformat.write(only_what_is_seen(nbformat.read(REPOSITORY / path, 4)), course / path)


@pytest.fixture(scope="module")
def all_lessons(course: Path) -> None:
    """All of the course's notebooks in that folder: where links lead."""
    for head in shipped.heads():
        bring(course, f"notebooks/{head.file}")


@pytest.fixture
def write_notebook(course: Path, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Write a notebook with these cells, named after the test; return its path on the server."""

    def write(*sources: str) -> str:
        notebook = new_notebook(cells=[new_code_cell(source.strip()) for source in sources])
        notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
        path = f"notebooks/{request.function.__name__}.ipynb"
        nbformat.write(notebook, course / path)
        return path

    return write


@contextmanager
def _windows(browser: Browser, server: LabServer, course: Path) -> Iterator[Callable[..., NotebookPage]]:
    opened: list[NotebookPage] = []

    def open_(path: str, without: str = "", unfolded: bool = True) -> NotebookPage:
        bring(course, path)
        page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        page.set_default_timeout(PATIENCE_MS)
        if without:
            page.route(without, lambda route: route.abort())
        opened.append(NotebookPage(page, server, path=path))
        return opened[-1].open(path, unfolded)

    try:
        yield open_
    finally:
        for notebook in opened:
            notebook.page.context.close()
            server.end_kernels(notebook.path)


@pytest.fixture
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
def notebook(request: pytest.FixtureRequest) -> str:
    """The path of the module's ``NOTEBOOK``."""
    path: str = request.module.NOTEBOOK
    return path


@pytest.fixture(scope="module")
def lesson(browser: Browser, lab_server: LabServer, course: Path, notebook: str) -> Iterator[NotebookPage]:
    """A notebook, open and run once for all tests of its module."""
    with _windows(browser, lab_server, course) as open_:
        yield open_(notebook).run_all()


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
    page.set_default_timeout(PATIENCE_MS)
    page.requests = []
    page.on("request", lambda asked: page.requests.append(asked.url))
    page.goto(address)
    yield page
    page.close()
