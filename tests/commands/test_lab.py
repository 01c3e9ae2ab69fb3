from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest

from amp_lessons.commands import lab


@pytest.fixture
def course(tmp_path):
    notebook = tmp_path / "course" / lab.FIRST_NOTEBOOK
    notebook.parent.mkdir(parents=True)
    notebook.write_text("{}")
    return tmp_path / "course"


@pytest.fixture
def no_checkout(monkeypatch, tmp_path):
    """Make the package look as if it was installed from a wheel, far from any notebook."""
    monkeypatch.setattr(lab, "__file__", str(tmp_path / "site-packages/amp_lessons/commands/lab.py"))


@pytest.fixture
def launched(monkeypatch):
    """Record what JupyterLab would be started with."""
    seen = []
    monkeypatch.setattr("jupyterlab.labapp.main", seen.append)
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "")
    return seen


def test_the_course_is_found_from_anywhere_inside_it(course, no_checkout):
    assert lab.find_course(course) == course
    assert lab.find_course(course / "notebooks") == course
    assert lab.find_course(course.parent) is None


def test_outside_of_it_the_packages_own_checkout_is_found(monkeypatch, course, tmp_path):
    monkeypatch.setattr(lab, "__file__", str(course / "amp_lessons" / "commands" / "lab.py"))
    assert lab.find_course(tmp_path) == course


def test_jupyterlab_starts_at_the_root_on_the_first_lesson(monkeypatch, course, no_checkout, launched):
    monkeypatch.chdir(course / "notebooks")
    assert lab.run(Namespace(passed_on=["--no-browser"])) == 0
    assert launched == [
        [
            f"--ServerApp.root_dir={course}",
            "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
            "--no-browser",
        ]
    ]


def test_the_news_question_is_answered_beforehand(monkeypatch, course, no_checkout, launched):
    monkeypatch.chdir(course)
    lab.run(Namespace(passed_on=[]))
    (folder,) = os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    settings = json.loads((Path(folder) / "labconfig" / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"


def test_the_users_own_jupyter_settings_come_first():
    assert lab.config_path("/home/me/jupyter").split(os.pathsep) == [
        "/home/me/jupyter",
        str(lab.JUPYTER_CONFIG),
    ]


def test_without_the_notebooks_it_says_what_to_do(monkeypatch, no_checkout, launched, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert lab.run(Namespace(passed_on=[])) == 1
    assert "clone the repository" in capsys.readouterr().err
    assert launched == []


def test_without_jupyterlab_it_says_what_to_do(monkeypatch, course, no_checkout, launched, capsys):
    monkeypatch.chdir(course)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert lab.run(Namespace(passed_on=[])) == 1
    assert "-m pip install jupyterlab" in capsys.readouterr().err
    assert launched == []
