from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from amp_lessons import lessons
from amp_lessons.cli import lab
from amp_lessons.cli.lab import server, surroundings
from amp_lessons.cli.lab.surroundings import Surroundings, free_port
from amp_lessons.course import progress
from amp_lessons.course.lessons import shipped
from tests.course.keep import keep


@pytest.fixture
def originals(monkeypatch, tmp_path):
    """Two lessons, as an installed package has them."""
    folder = tmp_path / "course" / "notebooks"
    folder.mkdir(parents=True)
    for name in ("00_start_here.ipynb", "03_loss_scaling.ipynb"):
        (folder / name).write_text(json.dumps({"cells": [{"source": f"{name}, version 1"}]}))
    monkeypatch.setattr(lessons, "originals", lambda: folder)
    return folder


@pytest.fixture
def here(monkeypatch, tmp_path):
    """An empty folder to be in, on a machine where nothing is to be said."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(surroundings, "look", Surroundings)
    return folder


@pytest.fixture
def launched(monkeypatch):
    """Record what JupyterLab would be started with."""
    seen = []
    monkeypatch.setattr("jupyterlab.labapp.main", seen.append)
    for name in ("JUPYTER_CONFIG_PATH", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "")
    monkeypatch.delenv("PYTHONSTARTUP")
    return seen


def in_a_hub(patched):
    patched.setattr(surroundings, "look", lambda: Surroundings(in_hub=True))


def without_jupyterlab(patched):
    find = importlib.util.find_spec
    patched.setattr("importlib.util.find_spec", lambda name: None if name == "jupyterlab" else find(name))


def without_lessons(patched):
    patched.setattr(lessons, "originals", shipped.originals)
    for place in ("INSTALLED", "CHECKED_OUT"):
        patched.setattr(shipped, place, Path("nowhere"))


def without_a_free_port(patched):
    patched.setattr(surroundings, "_PORTS_TO_TRY", 0)
    patched.setattr(surroundings, "free_port", free_port)


def on_a_disk_that_refuses(number):
    def bring(folder, source):
        raise OSError(number, "something strange")

    return lambda patched: patched.setattr(lessons, "bring", bring)


# What is typed, each time in a folder with nothing but a file in it, and what is otherwise on that machine.
TYPED = {
    "lab --no-browser": None,
    "lab mine --collaborative --browser firefox --port 8899": None,
    "lab --browser firefox": None,
    "lab --bogus": None,
    "lab --debugg": None,
    "lab --port=99999": None,
    "lab --colaborative=1": None,
    "lab mine other": None,
    "lab --YDocExtension.disable_rtc=True -y --ServerApp.port=8899": None,
    "lab --debug mine": None,
    "lab --copy-only": None,
    "lab --originals": None,
    "lab file": None,
    "reset 03": None,
    "lab in-a-hub": in_a_hub,
    "lab without-jupyterlab": without_jupyterlab,
    "lab without-lessons": without_lessons,
    "lab without-a-free-port": without_a_free_port,
    "lab of-somebody-else": on_a_disk_that_refuses(errno.EACCES),
    "lab only-to-read": on_a_disk_that_refuses(errno.EROFS),
    "lab full": on_a_disk_that_refuses(errno.ENOSPC),
    "lab broken": on_a_disk_that_refuses(errno.EIO),
}


def test_what_is_said_and_made_and_how_jupyterlab_starts(
    originals, launched, monkeypatch, tmp_path, session, golden
):
    told = []
    for number, (typed, otherwise) in enumerate(TYPED.items()):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "file").touch()
        with monkeypatch.context() as patched:
            patched.chdir(folder)
            patched.setattr(surroundings, "look", Surroundings)
            patched.setattr(surroundings, "free_port", lambda port: port)
            if otherwise:
                otherwise(patched)
            said = session(typed)
        made = " ".join(sorted(each.name for each in folder.iterdir()))
        started = " ".join(launched.pop()) if launched else ""
        text = f"{said}\nmade: {made}\nJupyterLab: {started}".replace(str(tmp_path), "HERE")
        told.append(text.replace(f"HERE/{number}", "HERE"))
    text = (
        "\n\n".join(told).replace(str(lab.LABEXTENSIONS), "LABEXTENSIONS").replace(sys.executable, "python")
    )
    golden("lab.txt", re.sub(r"(did you mean --\w+) or .*", r"\1 …", text))  # JupyterLab has other options


def test_who_comes_back_lands_where_they_stopped_and_kernels_know_it(
    originals, here, launched, session, monkeypatch
):
    keep("answer", "scaling.does_it_hurt", True)
    keep("answer", "start.halved", True)  # in the same second
    keep("review", "largest_safe_scale", "good", progress.utc_now() + timedelta(seconds=1))
    monkeypatch.setattr(progress, "utc_now", lambda: datetime(2099, 1, 1, tzinfo=timezone.utc))
    said = session("lab --no-browser")
    assert "--LabApp.default_url=/lab/tree/03_loss_scaling.ipynb" in launched[0]
    assert "you stopped in lesson 03, “Exercise: compute the largest safe scale”. Next: lesson 03, th" in said
    assert os.environ["PYTHONSTARTUP"] == str(lab.STARTUP)


def test_the_page_is_told_where_somebody_stopped_who_comes_back(monkeypatch):
    assert server.with_the_place(None, {})["ampStopped"] is None, "nothing was done yet"
    keep("answer", "scaling.window", False)
    assert server.with_the_place(None, {})["ampAnswered"] == ["scaling.window"], "no answer to it is covered"
    assert server.with_the_place(None, {})["ampStopped"]["said"] == "", "that was just now"
    monkeypatch.setattr(progress, "utc_now", lambda: datetime(2099, 1, 1, tzinfo=timezone.utc))
    place = server.with_the_place(None, {"a": 1})["ampStopped"]
    assert (place["file"], place["cell"]) == ("03_loss_scaling.ipynb", "live-window"), (
        "which may not have run"
    )
    assert place["next"]["cell"] == "largest-safe-scale-card"
    keep("end_core", "03")
    keep("choose", "evening")
    keep("end_core", "00")
    monkeypatch.setattr(progress, "utc_now", lambda: datetime(2099, 1, 2, tzinfo=timezone.utc))
    place = server.with_the_place(None, {})["ampStopped"]
    assert place["cell"] == "lesson-end", "of lesson 03, or of 00"
    assert place["next"] == {"label": "Next: lesson 04", "file": "04_fp32_vs_amp.ipynb", "cell": "objective"}
    keep("choose", "advise")
    assert "next" not in server.with_the_place(None, {})["ampStopped"], "a command stands nowhere"
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    assert server.with_the_place(None, {"a": 1}).keys() == {"a", "ampPage"}


def test_what_goes_to_the_place_comes_with_the_page():
    (listed,) = lab.LABEXTENSIONS.glob("*/package.json")
    assert (listed.parent / json.loads(listed.read_text())["jupyterlab"]["_build"]["load"]).is_file()
    settings = json.loads((lab.JUPYTER_CONFIG / "jupyter_server_config.json").read_text())
    assert settings["ServerApp"]["jpserver_extensions"] == {server.__name__: True}


def test_a_record_that_cannot_be_read_leads_to_the_first_lesson(
    originals, here, launched, session, monkeypatch
):
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    monkeypatch.setenv("PYTHONSTARTUP", "mine.py")
    assert session("lab --no-browser").endswith("=> 0")
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in launched[0]
    assert os.environ["PYTHONSTARTUP"] == "mine.py"


def test_who_comes_back_is_told_what_came_and_may_have_a_lesson_afresh(
    originals, here, launched, session, golden
):
    told = [session("lab")]
    mine = here / "my_lessons" / "00_start_here.ipynb"
    mine.write_text('{"cells": [{"source": "my work"}]}')
    for name in ("00_start_here.ipynb", "03_loss_scaling.ipynb", "04_fp32_vs_amp.ipynb"):
        (originals / name).write_text('{"cells": [{"source": "version 2"}]}')
    told.append(session("lab", "reset 3 00", "reset 12"))
    golden("lab_again.txt", re.sub(r"yours-[\w-]+", "yours-…", "\n\n".join(told)))
    (kept,) = mine.parent.glob("00_start_here.yours-*.ipynb")
    assert "my work" in kept.read_text()


def test_news_are_not_asked_for_and_long_lines_of_code_are_wrapped(originals, here, launched, session):
    session("lab")
    (folder,) = os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    settings = json.loads((Path(folder) / "labconfig" / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert settings["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]["lineWrap"] is True


def test_the_users_own_jupyter_settings_come_first():
    assert lab.config_path("/home/me/jupyter").split(os.pathsep) == [
        "/home/me/jupyter",
        str(lab.JUPYTER_CONFIG),
    ]


def test_what_assistants_are_asked_is_not_among_the_learners_files(tmp_path):
    from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
    from traitlets.config import JSONFileConfigLoader

    settings = JSONFileConfigLoader("jupyter_server_config.json", str(lab.JUPYTER_CONFIG)).load_config()
    browser = AsyncLargeFileManager(root_dir=str(tmp_path), config=settings)
    shown = ("03_loss_scaling.ipynb", "train.py", "notes.md", "AGENTS.md", "__pycache__")
    assert [name for name in shown if browser.should_list(name)] == list(shown[:3])
