"""Colab and Kaggle open the notebooks by links at their heads; a first cell installs the course there."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import time
from importlib import metadata
from types import SimpleNamespace

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


def read(path):
    return json.loads(path.read_text("utf-8"))


def install_cell(path):
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


def run(cell):
    """Run the cell; return what it showed, and what it asked of IPython."""
    said, asked = io.StringIO(), []
    kernel = SimpleNamespace(run_line_magic=lambda name, line: asked.append((name, *line.split())))
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        exec(cell, {"get_ipython": lambda: kernel})
    return said.getvalue(), asked


def test_where_the_course_is_installed_it_does_nothing_at_once():
    cell = install_cell(NOTEBOOKS[0])
    start = time.perf_counter()
    assert run(cell) == ("", [])
    assert time.perf_counter() - start < 0.1


def test_elsewhere_it_installs_from_the_repository_what_the_course_needs_and_replaces_nothing(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", {"amp_lessons": None}.__getitem__)
    ((magic, verb, *words),) = run(install_cell(NOTEBOOKS[0]))[1]
    assert (magic, verb) == ("pip", "install")
    assert "--no-deps" in words  # Colab's torch, numpy and ipywidgets stay as they are
    assert words[-1] == f"git+{REPOSITORY}", f"the first code cell of each notebook: {FORK}"
    assert REPOSITORY in (ROOT / "README.md").read_text("utf-8"), f"README.md: {FORK}"
    beside = {canonicalize_name(word) for word in words[:-1] if not word.startswith("--")}
    of_anywidget = {canonicalize_name(Requirement(line).name) for line in metadata.requires("anywidget")}
    assert {"anywidget", "lazy-loader"} <= beside <= {*requirements("lab"), *of_anywidget}
