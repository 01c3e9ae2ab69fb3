"""From outside: a clone that is opened, written in and brought up to date, and a wheel far from any clone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import requests

from tests.test_packaging import PROJECT
from tools.ports import free_port
from tools.programs import Program

ROOT = Path(__file__).parents[1]
LESSONS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE")
SOURCES = ("amp_lessons", "notebooks", "docs", *FILES)
NOBODY = 65534
TOKEN = "the-token-of-this-test"
START_TIMEOUT_S = 90

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@contextmanager
def serving(command, folder, home, **environment):
    """Run a command that starts JupyterLab in ``folder``; give what asks its contents API, and it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER_", "AMP_"))}
    env = {**kept, "PYTHONPATH": "", **environment, "HOME": str(home), "JUPYTER_TOKEN": TOKEN}
    with Program(command, home / "log", cwd=folder, env=env, end_s=0.1) as program:
        program.wait_until(lambda: answers(program), START_TIMEOUT_S)
        yield partial(ask, url_of(program)), program


def url_of(program):
    """Return the address that JupyterLab says it has taken."""
    found = re.search(r"http://127\.0\.0\.1:\d+(?=/)", program.said())
    return found[0] if found else ""


def answers(program):
    with suppress(requests.RequestException):
        return bool(ask(url_of(program)))
    return False


def ask(url, path="", method="GET", **content):
    address, said = f"{url}/api/contents/{path}", {"params": {"token": TOKEN}, "json": content or None}
    answer = requests.request(method, address, timeout=30, **said)
    answer.raise_for_status()
    return answer.json()


def git(folder, *arguments):
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def clones(tmp_path):
    """The course as somebody publishes it, and a learner's clone of that with its environment made."""
    published, clone = tmp_path / "published", tmp_path / "clone"
    tracked = git(ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split("\0")
    for name in filter(None, tracked):
        if (ROOT / name).is_file():
            (published / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, published / name)
    git(published.parent, "init", "--quiet", str(published))
    git(published, "add", ".")
    git(published, "commit", "--quiet", "-m", "version 1")
    git(tmp_path, "clone", "--quiet", str(published), str(clone))
    (clone / ".venv").mkdir()
    (clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (clone / ".venv" / "installed-lab").touch()
    return published, clone


def make_lab(*options):
    return ["make", "lab", f"LAB_ARGS={' '.join(options)}"]


def changed(notebook, said):
    """The notebook with another first cell, as JupyterLab would save it."""
    content = json.loads(notebook) if isinstance(notebook, str) else notebook
    content["cells"][0]["source"] = said
    return content


def said(path):
    return "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])


@pytest.mark.thorough
@pytest.mark.skipif(not all(map(shutil.which, ("git", "make"))), reason="needs git and make")
def test_a_learner_pulls_a_new_version_over_a_lesson_edited_and_run(clones, tmp_path):
    published, clone = clones
    mine = clone / "my_lessons"
    lab = make_lab("--no-browser", f"--port={free_port()}")
    with serving(lab, clone, tmp_path, PYTHONPATH=str(clone)) as (ask, _):
        assert sorted(entry["name"] for entry in ask()["content"]) == sorted(LESSONS)
        lesson = ask(LESSONS[0])["content"]
        lesson["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "ran here\n"}]
        ask(LESSONS[0], "PUT", type="notebook", format="json", content=changed(lesson, "my notes"))
    for name in (LESSONS[0], LESSONS[3]):
        original = published / "notebooks" / name
        original.write_text(json.dumps(changed(original.read_text(), "version 2")))
    git(published, "commit", "--quiet", "--all", "-m", "version 2")

    assert git(clone, "status", "--porcelain") == ""
    git(clone, "pull", "--quiet")
    env = {**os.environ, "PYTHONPATH": str(clone)}
    done = subprocess.run(make_lab("--copy-only"), cwd=clone, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"There is a new version of {LESSONS[0]}" in done.stdout
    assert f"had not touched: {LESSONS[3]}" in done.stdout
    assert said(mine / LESSONS[0]) == "my notes"
    assert "ran here" in (mine / LESSONS[0]).read_text()
    assert said(mine / f"{Path(LESSONS[0]).stem}.new.ipynb") == "version 2"
    assert said(mine / LESSONS[3]) == "version 2"
    title, *_ = said(ROOT / "notebooks" / LESSONS[1]).splitlines()  # below it, the original has links
    assert said(mine / LESSONS[1]).startswith(title)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from a copy: setuptools leaves a folder behind, and takes old files from it."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*build, "-w", str(out), str(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (made,) = out.iterdir()
    return made


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An environment of its own that has the wheel, and of this one only what others wrote."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # its own .pth files are not read
    open_to_everyone(folder)
    return folder / "bin"


def open_to_everyone(folder):
    """Let another user in: pytest's folders are closed to all but their owner."""
    while folder.stat().st_uid == os.geteuid() and folder not in (Path("/"), Path(tempfile.gettempdir())):
        folder.chmod(folder.stat().st_mode | 0o055)
        folder = folder.parent


def as_root(command):
    if os.geteuid() != 0:
        pytest.skip("only root can be root")
    return command


def as_an_ordinary_user(command):
    """Run as nobody, who may read what root may: the interpreter under test can lie in root's home."""
    if os.geteuid() != 0:
        return command
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv to be another user")
    user = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return [*user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", *command]


def test_the_wheel_says_what_it_is_and_holds_what_a_learner_needs_and_nothing_else(wheel):
    archive = zipfile.ZipFile(wheel)
    names = archive.namelist()
    (metadata,) = [archive.read(name).decode() for name in names if name.endswith("/METADATA")]
    for line in (f"Version: {PROJECT['version']}", "License-Expression: MIT", "Requires-Dist: jupyterlab"):
        assert line in metadata
    inside = [name for name in names if name.startswith("amp_lessons/")]
    assert [Path(name).name for name in inside if name.endswith(".ipynb")] == LESSONS
    for kind in ("quizzes/*.json", "bench/recordings/*.json", "exercises/*/card.md", "views/base/*.js"):
        expected = {str(path.relative_to(ROOT)) for path in (ROOT / "amp_lessons").glob(kind)}
        assert expected - {"amp_lessons/course/exercises/_template/card.md"} <= set(inside)
    assert len(inside) == len([name for name in names if ".dist-info/" not in name])
    assert not [name for name in names if "attempts.py" in name and name.count("/") > 2]


def test_the_changelog_begins_with_this_version():
    versions = [line[3:] for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line[:3] == "## "]
    assert versions[0] == PROJECT["version"]


@pytest.mark.few
@pytest.mark.parametrize("as_user", [as_root, as_an_ordinary_user])
def test_the_wheel_opens_the_course_in_an_empty_folder(installed, tmp_path, as_user):
    empty, home = tmp_path / "empty", tmp_path / "home"
    for folder in (empty, home):
        folder.mkdir()
        folder.chmod(0o777)
    open_to_everyone(tmp_path)
    command = as_user([str(installed / "amp-lessons"), "lab", "--no-browser", f"--port={free_port()}"])
    with serving(command, empty, home) as (ask, program):
        assert sorted(entry["name"] for entry in ask()["content"]) == sorted(LESSONS)
        owner = (empty / "my_lessons" / LESSONS[0]).stat().st_uid
    told = program.said()
    assert f"Your own copy of the lessons is in {empty / 'my_lessons'}." in told
    assert ("You are root" in told) == (owner == 0)


@pytest.mark.thorough
def test_a_second_window_of_the_course_opens_beside_the_first(installed, tmp_path):
    port = free_port()
    lab = [str(installed / "amp-lessons"), "lab", "--no-browser", f"--port={port}"]
    homes = [tmp_path / name for name in ("first", "second")]
    for home in homes:
        home.mkdir()
    with serving(lab, tmp_path, homes[0]) as (ask, _), serving(lab, tmp_path, homes[1]) as (other, second):
        assert f"Port {port} is taken" in second.said()
        lesson = ask(LESSONS[0])["content"]
        ask(LESSONS[0], "PUT", type="notebook", format="json", content=changed(lesson, "my notes"))
        assert other(LESSONS[0])["content"]["cells"][0]["source"] == "my notes"


def test_the_wheels_python_runs_the_wheels_course(installed):
    code = "import amp_lessons.course.lessons as l; print(l.originals())"
    command = [str(installed / "python"), "-c", code]
    done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True)
    assert done.stdout.startswith(str(installed.parent)), done.stderr


@pytest.mark.thorough
def test_an_ordinary_user_without_permission_is_told(installed, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    open_to_everyone(tmp_path)
    closed.chmod(0o555)
    command = as_an_ordinary_user([str(installed / "amp-lessons"), "lab", "--no-browser"])
    done = subprocess.run(command, cwd=closed, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"you may not write in {closed / 'my_lessons'}" in done.stderr
    assert "Traceback" not in done.stderr
