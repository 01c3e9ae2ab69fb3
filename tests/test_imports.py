"""Importing the package loads nothing heavy: matplotlib, widgets and data wait until something is made."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from amp_lessons import views
from benchmarks import import_time

pytestmark = pytest.mark.slow

HEAVY = {"matplotlib", "ipywidgets", "IPython", "sklearn", "scipy", "pandas", "transformers", "jupyterlab"}

LOADED = """
import gc, sys
gc.disable()
import torch
before = set(sys.modules)
{statement}
print(*sorted(set(sys.modules) - before))
"""


def newly_loaded(statement):
    return {name.partition(".")[0] for name in modules_loaded(statement)}


def modules_loaded(statement):
    command = [sys.executable, "-c", LOADED.format(statement=statement)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_no_module_loads_what_only_some_of_it_needs():
    modules = import_time.modules()
    assert {"amp_lessons", "amp_lessons.devices", "amp_lessons.cli"} <= set(modules)
    assert newly_loaded("import " + ", ".join([*modules, "amp_lessons.cli.cli"])) & HEAVY == set()


def test_the_package_itself_loads_nothing():
    assert newly_loaded("import amp_lessons") == {"amp_lessons", "lazy_loader"}


def test_watching_a_training_loads_neither_reports_nor_explanations_nor_what_runs_models():
    loaded = modules_loaded("import amp_lessons.audit.watch")
    assert "amp_lessons.audit.rules.judge" in loaded
    ours = {".".join(name.split(".")[1:3]) for name in loaded if name.startswith("amp_lessons.")}
    assert not {name for name in ours if name.startswith(("autocast", "devices", "measure", "views"))}
    assert not {"audit.explaining", "formats.blocks", "formats.sums", "scaling.backward"} & ours
    assert "amp_lessons.audit.report.report" not in loaded
    assert "markupsafe" not in {name.partition(".")[0] for name in loaded}


@pytest.mark.thorough
def test_a_heavy_import_would_be_seen():
    assert "matplotlib" in newly_loaded("import matplotlib.figure")


@pytest.mark.thorough
def test_import_time_is_measured_beyond_torch():
    assert 0 < import_time.import_ms("amp_lessons") < import_time.import_ms("matplotlib.pyplot")


FACES = (
    "advice",
    "audit",
    "autocast",
    "formats",
    "fp8",
    "measure",
    "parallel",
    "scaling",
    "course.interview",
    "course.views",
)


@pytest.mark.few
@pytest.mark.parametrize("package", ["amp_lessons", *(f"amp_lessons.{face}" for face in FACES)])
def test_whatever_a_stub_names_loads_and_is_documented(package):
    face = importlib.import_module(package)
    named = re.findall(r"^from \S+ import (\w+) as \1$", Path(face.__file__ + "i").read_text(), re.MULTILINE)
    assert named
    assert sorted(named) == sorted(face.__all__)
    assert dir(face) == face.__all__
    for name in named:
        assert inspect.getdoc(getattr(face, name)), f"{package}.{name} has no docstring"


def test_a_view_that_does_not_exist_is_answered_with_those_that_do():
    with pytest.raises(AttributeError, match=r"no attribute 'BitsView'; it has .*BitView.*curves"):
        views.BitsView  # noqa: B018


@pytest.mark.few
@pytest.mark.parametrize("face", [*FACES, "course.material"])
def test_importing_a_face_loads_nothing_of_what_it_offers(face):
    assert newly_loaded(f"import amp_lessons.{face}") <= {"amp_lessons", "lazy_loader"}
