"""The host is told by what it has loaded and set, and what it lacks never becomes an exception."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from amp_lessons.course.views.base import shown
from amp_lessons.course.views.base.controls import Slider


@pytest.fixture(autouse=True)
def nowhere(monkeypatch):
    """A kernel without a page, whatever runs these tests; nothing has been asked yet."""
    for name in ("JPY_SESSION_NAME", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    shown.enable_widgets_on_colab.cache_clear()
    yield
    shown.enable_widgets_on_colab.cache_clear()


@pytest.fixture
def colab(monkeypatch):
    """Pretend that this is Colab's kernel: give it a ``google.colab.output`` with these functions."""

    def pretend(**functions):
        google, package, output = map(ModuleType, ("google", "google.colab", "google.colab.output"))
        google.colab, package.output = package, output
        output._widgets = ModuleType("google.colab.output._widgets")
        vars(output).update(functions)
        for module in (google, package, output):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        return output

    return pretend


@pytest.mark.parametrize("name", ["JPY_SESSION_NAME", "KAGGLE_KERNEL_RUN_TYPE"])
def test_a_jupyter_server_and_kaggle_have_a_page_and_a_program_that_runs_cells_has_none(name, monkeypatch):
    assert not shown.has_page()
    monkeypatch.setenv(name, "whatever they say")
    assert shown.has_page()


def test_vscode_has_a_page(monkeypatch):
    shell = SimpleNamespace(user_ns={"__vsc_ipynb_file__": "/course/notebooks/00_start_here.ipynb"})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    assert shown.has_page()
    shell.user_ns.clear()
    assert not shown.has_page()


def test_colab_has_a_page_and_is_asked_once_for_other_widgets(colab):
    asked = []
    colab(enable_custom_widget_manager=lambda: asked.append("once"))
    assert shown.has_page()
    shown.enable_widgets_on_colab()
    shown.enable_widgets_on_colab()
    assert asked == ["once"]


def test_elsewhere_nothing_is_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "google", None)  # importing it now raises ImportError
    shown.enable_widgets_on_colab()


def refuse():
    raise RuntimeError("no widgets today")


@pytest.mark.parametrize(
    "functions", [{"enable_custom_widget_manager": refuse}, {}], ids=["refuses", "lacks"]
)
def test_a_colab_that_cannot_do_it_raises_neither_here_nor_in_anywidget(colab, functions):
    colab(**functions)
    shown.enable_widgets_on_colab()
    assert Slider("Scale", 0, 3, 1).value == 1


def test_a_colab_without_an_output_module_raises_nothing(colab, monkeypatch):
    colab()
    monkeypatch.delattr(sys.modules["google.colab"], "output")
    monkeypatch.delitem(sys.modules, "google.colab.output")
    shown.enable_widgets_on_colab()
