"""Colab and Kaggle open the notebooks by links at their heads; a first cell installs the course there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import time
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.notebook_rules import code_cells, source
from tests.test_packaging import PROJECT, ROOT, requirements

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REPOSITORY = PROJECT["urls"]["Repository"]
NAME = REPOSITORY.removeprefix("https://github.com/")
FORK = f"the repository is {REPOSITORY} in pyproject.toml; python -m tools.address writes it everywhere"

in_every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> dict:
    return json.loads(path.read_text("utf-8"))


def install_cell(path: Path) -> str:
    return source(code_cells(read(path))[0])


@in_every_notebook
def test_the_first_code_cell_installs_and_is_the_same_everywhere(path):
    cell = code_cells(read(path))[0]
    assert cell["id"] == "install"
    assert cell["metadata"] == {"jupyter": {"source_hidden": True}}, "nobody has to read it: it is folded"
    assert cell["outputs"] == []
    assert source(cell) == install_cell(NOTEBOOKS[0])


@in_every_notebook
def test_the_links_at_its_head_open_this_notebook(path):
    said = source(read(path)["cells"][0]).splitlines()[-1]
    inside = f"main/notebooks/{path.name}"
    colab = f"https://colab.research.google.com/github/{NAME}/blob/{inside}"
    kaggle = f"https://kaggle.com/kernels/welcome?src=https://raw.githubusercontent.com/{NAME}/{inside}"
    assert said == f"[Open in Colab]({colab}) · [Open in Kaggle]({kaggle})", f"{path.name}: {FORK}"


def test_the_readme_names_the_repository():
    assert REPOSITORY in (ROOT / "README.md").read_text("utf-8"), f"README.md: {FORK}"


class Kernel:
    """What the cell asks of IPython, written down."""

    def __init__(self):
        self.asked = []

    def run_line_magic(self, name, line):
        self.asked.append((name, *line.split()))


def run(cell, kernel):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        exec(cell, {"get_ipython": lambda: kernel})
    return said.getvalue()


def test_where_the_course_is_installed_it_does_nothing_at_once():
    cell, kernel = install_cell(NOTEBOOKS[0]), Kernel()
    start = time.perf_counter()
    assert run(cell, kernel) == ""
    assert time.perf_counter() - start < 0.1
    assert kernel.asked == []


@pytest.fixture
def asked(monkeypatch):
    """What the cell asks of pip where the course is missing, word by word."""
    monkeypatch.setattr(importlib.util, "find_spec", {"amp_lessons": None}.__getitem__)
    kernel = Kernel()
    run(install_cell(NOTEBOOKS[0]), kernel)
    (asked,) = kernel.asked
    return asked


def test_elsewhere_it_installs_from_the_repository_and_replaces_nothing(asked):
    magic, verb, *words = asked
    assert (magic, verb) == ("pip", "install")
    assert "--no-deps" in words  # Colab's torch, numpy and ipywidgets stay as they are
    assert words[-1] == f"git+{REPOSITORY}", f"the first code cell of each notebook: {FORK}"


def test_what_it_installs_beside_the_course_is_what_the_course_needs(asked):
    beside = {canonicalize_name(word) for word in asked[2:-1] if not word.startswith("--")}
    needed = set(requirements("lab"))
    of_anywidget = {canonicalize_name(Requirement(line).name) for line in metadata.requires("anywidget")}
    assert {"anywidget", "lazy-loader"} <= beside <= needed | of_anywidget
