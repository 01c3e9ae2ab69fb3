from __future__ import annotations

import errno
import importlib.util
import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from amp_lessons import lessons
from amp_lessons.cli import cli, lab
from amp_lessons.cli.lab import server, surroundings
from amp_lessons.cli.lab.surroundings import Surroundings
from amp_lessons.course import progress
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


def amp_lessons(*arguments):
    return cli.main(list(map(str, arguments)))


def test_jupyterlab_starts_in_the_learners_copy_on_the_first_lesson(originals, here, launched, capsys):
    assert amp_lessons("lab", "--no-browser") == 0
    (options,) = launched
    assert options[:2] == [
        f"--ServerApp.root_dir={here / 'my_lessons'}",
        "--LabApp.default_url=/lab/tree/00_start_here.ipynb",
    ]
    assert "--no-browser" in options
    assert f"Your own copy of the lessons is in {here / 'my_lessons'}." in capsys.readouterr().out


def test_who_comes_back_lands_where_they_stopped_and_kernels_know_it(
    originals, here, launched, capsys, monkeypatch
):
    keep("answer", "scaling.does_it_hurt", True)
    keep("answer", "start.halved", True)  # in the same second
    keep("review", "largest_safe_scale", "good", progress.utc_now() + timedelta(seconds=1))
    monkeypatch.setattr(progress, "utc_now", lambda: datetime(2099, 1, 1, tzinfo=timezone.utc))
    assert amp_lessons("lab", "--no-browser") == 0
    assert "--LabApp.default_url=/lab/tree/03_loss_scaling.ipynb" in launched[0]
    said = capsys.readouterr().out
    assert (
        "you stopped in lesson 03, “Exercise: compute the largest safe scale”. Next: lesson 03, the" in said
    )
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


def test_what_goes_to_the_place_comes_with_the_page(originals, here, launched):
    amp_lessons("lab", "--no-browser")
    assert f"--LabApp.extra_labextensions_path={lab.LABEXTENSIONS}" in launched[0]
    (listed,) = lab.LABEXTENSIONS.glob("*/package.json")
    assert (listed.parent / json.loads(listed.read_text())["jupyterlab"]["_build"]["load"]).is_file()
    settings = json.loads((lab.JUPYTER_CONFIG / "jupyter_server_config.json").read_text())
    assert settings["ServerApp"]["jpserver_extensions"] == {server.__name__: True}


def test_a_record_that_cannot_be_read_leads_to_the_first_lesson(originals, here, launched, monkeypatch):
    monkeypatch.setenv("AMP_LESSONS_HOME", "relative")
    monkeypatch.setenv("PYTHONSTARTUP", "mine.py")
    assert amp_lessons("lab", "--no-browser") == 0
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in launched[0]
    assert os.environ["PYTHONSTARTUP"] == "mine.py"


def test_a_folder_can_be_named_and_jupyterlabs_options_passed_on(originals, here, launched):
    assert amp_lessons("lab", "mine", "--collaborative", "--browser", "firefox", "--port", 8899) == 0
    assert launched[0][0] == f"--ServerApp.root_dir={here / 'mine'}"
    assert launched[0][-3:] == ["--collaborative", "--browser", "firefox"]
    assert any(option.startswith(("--port=88", "--port=89")) for option in launched[0])


def test_what_an_option_is_set_to_is_not_taken_for_the_folder(originals, here, launched, capsys):
    assert amp_lessons("lab", "--browser", "firefox") == 1
    assert "Write --browser=firefox, or put the folder first." in capsys.readouterr().err
    assert list(here.iterdir()) == launched == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--bogus"], "Neither the course nor JupyterLab has an option '--bogus'"),
        (["--debugg"], "did you mean --debug"),
        (["--port=99999"], "--port=99999: ports end at 65535"),
        (["--colaborative=1"], "did you mean --collaborative"),
        (["mine", "other"], "'other' is one too many: lab takes one folder"),
    ],
)
def test_what_jupyterlab_does_not_know_is_refused_before_anything_is_made(
    originals, here, launched, capsys, words, said
):
    assert amp_lessons("lab", *words) == 1
    assert said in capsys.readouterr().err
    assert list(here.iterdir()) == launched == []


def test_traits_of_any_extension_are_passed_on(originals, here, launched):
    assert amp_lessons("lab", "--YDocExtension.disable_rtc=True", "-y", "--ServerApp.port=8899") == 0
    assert launched[0][-3:] == ["--YDocExtension.disable_rtc=True", "-y", "--ServerApp.port=8899"]


def test_an_option_that_takes_no_value_may_stand_before_the_folder(originals, here, launched):
    assert amp_lessons("lab", "--debug", "mine") == 0
    assert launched[0][0] == f"--ServerApp.root_dir={here / 'mine'}"


def test_the_learner_is_told_what_came(originals, here, launched, capsys):
    amp_lessons("lab")
    (here / "my_lessons" / "00_start_here.ipynb").write_text('{"cells": [{"source": "my work"}]}')
    for name in ("00_start_here.ipynb", "03_loss_scaling.ipynb", "04_fp32_vs_amp.ipynb"):
        (originals / name).write_text('{"cells": [{"source": "version 2"}]}')
    capsys.readouterr()
    amp_lessons("lab")
    told = capsys.readouterr().out
    assert "Added to" in told
    assert "had not touched: 03_loss_scaling.ipynb" in told
    assert "new version of 00_start_here.ipynb" in told
    assert "`amp-lessons reset 00`" in told


def test_the_copy_alone_can_be_asked_for(originals, here, launched, capsys):
    assert amp_lessons("lab", "--copy-only") == 0
    assert launched == []
    assert "begin with 00_start_here.ipynb" in capsys.readouterr().out


def test_a_folder_may_be_all_that_is_said(originals, here, launched):
    assert amp_lessons("lab", str(here / "elsewhere")) == 0
    assert lessons.is_copy(here / "elsewhere")


def test_within_a_hub_no_second_server_starts(originals, here, launched, monkeypatch):
    monkeypatch.setattr(surroundings, "look", lambda: Surroundings(in_hub=True))
    assert amp_lessons("lab") == 0
    assert launched == []
    assert lessons.is_copy(here / "my_lessons")


def test_authors_open_the_originals(originals, here, launched):
    assert amp_lessons("lab", "--originals") == 0
    assert launched[0][:2] == [
        f"--ServerApp.root_dir={originals.parent}",
        "--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb",
    ]
    assert list(here.iterdir()) == []


def test_news_are_not_asked_for_and_long_lines_of_code_are_wrapped(originals, here, launched):
    amp_lessons("lab")
    (folder,) = os.environ["JUPYTER_CONFIG_PATH"].split(os.pathsep)
    settings = json.loads((Path(folder) / "labconfig" / "default_setting_overrides.json").read_text())
    assert settings["@jupyterlab/apputils-extension:notification"]["fetchNews"] == "false"
    assert settings["@jupyterlab/notebook-extension:tracker"]["codeCellConfig"]["lineWrap"] is True


def test_the_users_own_jupyter_settings_come_first():
    assert lab.config_path("/home/me/jupyter").split(os.pathsep) == [
        "/home/me/jupyter",
        str(lab.JUPYTER_CONFIG),
    ]


def test_without_jupyterlab_it_says_what_to_do(originals, here, launched, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "jupyterlab" else find(name))
    assert amp_lessons("lab") == 1
    assert "-m pip install jupyterlab" in capsys.readouterr().err
    assert launched == []


def test_a_course_without_lessons_says_so(here, launched, monkeypatch, capsys):
    monkeypatch.setattr("amp_lessons.course.lessons.shipped.INSTALLED", here)
    monkeypatch.setattr("amp_lessons.course.lessons.shipped.CHECKED_OUT", here)
    assert amp_lessons("lab") == 1
    assert "install the course again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "you may not write in"),
        (errno.EROFS, "you may not write in"),
        (errno.ENOSPC, "the disk that holds"),
        (errno.EIO, "strange"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_in_words(
    originals, here, launched, monkeypatch, capsys, number, reason
):
    def fail(folder, source):
        raise OSError(number, "something strange")

    monkeypatch.setattr(lessons, "bring", fail)
    assert amp_lessons("lab") == 1
    said = capsys.readouterr().err
    assert reason in said
    assert str(here / "my_lessons") in said
    assert "amp-lessons lab FOLDER" in said


def test_a_file_is_no_folder_for_lessons(originals, here, launched, capsys):
    (here / "file").touch()
    assert amp_lessons("lab", "file") == 1
    assert f"{here / 'file'} is a file, and has to be a folder" in capsys.readouterr().err


def test_no_free_port_is_refused_in_words(originals, here, launched, monkeypatch, capsys):
    monkeypatch.setattr(surroundings, "_PORTS_TO_TRY", 0)
    assert amp_lessons("lab") == 1
    assert "name another: --port=N" in capsys.readouterr().err


def test_reset_gives_a_fresh_lesson_and_says_where_the_learners_is(originals, here, launched, capsys):
    amp_lessons("lab")
    mine = here / "my_lessons" / "03_loss_scaling.ipynb"
    mine.write_text('{"cells": [{"source": "my work"}]}')
    assert amp_lessons("reset", "3", "00") == 0
    told = capsys.readouterr().out
    (kept,) = mine.parent.glob("03_loss_scaling.yours-*.ipynb")
    assert f"03_loss_scaling.ipynb is as it came. What you had made of it is in {kept.name}." in told
    assert "00_start_here.ipynb is as it came.\n" in told
    assert "my work" in kept.read_text()


def test_reset_refuses_a_lesson_that_there_is_not(originals, here, launched, capsys):
    amp_lessons("lab")
    assert amp_lessons("reset", "12") == 1
    assert "choose one of 00, 03" in capsys.readouterr().err


def test_reset_needs_a_copy(originals, here, capsys):
    assert amp_lessons("reset", "03") == 1
    assert "is no copy of the lessons" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_what_assistants_are_asked_is_not_among_the_learners_files(tmp_path):
    from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
    from traitlets.config import JSONFileConfigLoader

    from amp_lessons.cli.lab import JUPYTER_CONFIG

    settings = JSONFileConfigLoader("jupyter_server_config.json", str(JUPYTER_CONFIG)).load_config()
    browser = AsyncLargeFileManager(root_dir=str(tmp_path), config=settings)
    shown = ("03_loss_scaling.ipynb", "train.py", "notes.md", "AGENTS.md", "__pycache__")
    assert [name for name in shown if browser.should_list(name)] == list(shown[:3])
