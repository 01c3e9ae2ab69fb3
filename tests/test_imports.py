"""Importing the package loads nothing heavy: matplotlib, widgets and data wait until something is made."""

from __future__ import annotations

import subprocess
import sys

from benchmarks import import_time

HEAVY = {"matplotlib", "ipywidgets", "IPython", "sklearn", "scipy", "pandas", "transformers", "jupyterlab"}

LOADED = """
import sys
import torch
before = set(sys.modules)
{statement}
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - before}}))
"""


def newly_loaded(statement):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(statement=statement)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_no_module_loads_what_only_some_of_it_needs():
    modules = import_time.modules()
    assert {"amp_lessons", "amp_lessons.devices", "amp_lessons.commands"} <= set(modules)
    assert newly_loaded("import " + ", ".join([*modules, "amp_lessons.commands.cli"])) & HEAVY == set()


def test_the_package_itself_loads_nothing():
    assert newly_loaded("import amp_lessons") == {"amp_lessons"}


def test_a_heavy_import_would_be_seen():
    assert "matplotlib" in newly_loaded("import matplotlib.figure")


def test_import_time_is_measured_beyond_torch():
    assert 0 < import_time.import_ms("amp_lessons") < import_time.import_ms("matplotlib.pyplot")
