"""The hub for trying, really run; and the one of a class, as far as that goes without systemd."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

pytest.importorskip("jupyterhub", reason="needs the extra 'classroom'")

from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator, PAMAuthenticator
from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from jupyterhub.proxy import ConfigurableHTTPProxy
from jupyterhub.spawner import SimpleLocalProcessSpawner, Spawner
from traitlets import HasTraits, TraitError
from traitlets.config import PyFileConfigLoader

from classroom import sizes
from classroom.load import places
from classroom.load.learner import BrokenError

FOLDER = Path(__file__).parents[2] / "classroom" / "jupyterhub"
ABOUT = """
import io, os, sys, amp_lessons, torch
home = os.path.expanduser("~")
told = {"lessons": os.listdir(), "sockets": os.listdir(home + "/.run"), "threads": torch.get_num_threads()}
told["mode"] = oct(os.stat(home).st_mode)[-3:]
sys.stderr = said = io.StringIO()
"""


def log_in(demo, name, password=""):
    """Log in as a person does; return the session, and how the hub answered."""
    http, page = requests.Session(), f"{demo.url}/hub/login"
    http.get(page, timeout=90)
    form = {"username": name, "password": password or demo.password, "_xsrf": http.cookies["_xsrf"]}
    return http, http.post(page, data=form, timeout=90).status_code


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("no_loop_runs")
def test_a_learner_logs_in_gets_a_copy_and_runs_cells_that_nobody_else_may_see(demo, tmp_path):
    assert log_in(demo, "ada", "wrong")[1] == 403
    assert log_in(demo, "teacher")[1] == 403, "the learners' password is not the teacher's"
    path = tmp_path / "hub.json"
    path.write_text(json.dumps({"url": demo.url, "passwords": {"ada": demo.password}}))

    async def run():
        place = places.entered(str(path), 1, ExitStack())
        async with await place.join(0) as ada:
            await ada.open()
            with pytest.raises(BrokenError, match="has 1 learners"):
                await place.join(1)
            await ada.run(ABOUT, 90)
            await ada.run("raise MemoryError", 60)
            return await ada.ask("{**told, 'said': said.getvalue()}")

    told = asyncio.run(run())
    assert {"00_start_here.ipynb", "03_loss_scaling.ipynb"} <= set(told["lessons"])
    assert (told["threads"], told["mode"]) == (1, "700"), "the home is the learner's alone"
    assert "-ipc-" in str(told["sockets"]), "kernels are not to be listened to over TCP"
    assert f"A kernel may use {sizes.limit_mib(sizes.EVERYDAY)} MiB" in told["said"]
    bob, status = log_in(demo, "bob")
    assert status == 200
    assert bob.get(f"{demo.url}/user/ada/api/contents", timeout=60).status_code == 403
    (said,) = [line for line in demo.program.said().splitlines() if line.startswith("teacher, password ")]
    teacher, status = log_in(demo, "teacher", said.split()[-1])
    assert status == 200
    assert "Show the answers" in teacher.get(f"{demo.url}/services/room/", timeout=60).text


def loaded(name):
    """Return what a configuration file sets."""
    return PyFileConfigLoader(name, path=str(FOLDER)).load_config()


CLASSES = [JupyterHub, ConfigurableHTTPProxy, Spawner, SimpleLocalProcessSpawner, Authenticator]
CLASSES += [PAMAuthenticator, SharedPasswordAuthenticator]


@pytest.mark.parametrize("name", ["jupyterhub_config.py", "demo_config.py"])
def test_every_option_exists_and_takes_its_value(name):
    systemd = pytest.importorskip("systemdspawner", reason="needs the extra 'classroom'").SystemdSpawner
    known = {each.__name__: each for each in (*CLASSES, systemd)}
    for section, values in loaded(name).items():
        for option, value in values.items():
            traits = known[section].class_traits(config=True)
            assert option in traits, f"c.{section}.{option}"
            if not hasattr(value, "get_value"):  # what is only added to is checked when a hub starts
                traits[option]._validate(HasTraits(), value)


def test_a_wrong_value_would_be_noticed():
    with pytest.raises(TraitError):
        Spawner.class_traits(config=True)["cpu_limit"]._validate(HasTraits(), "two")


def test_the_hub_of_a_class_holds_learners_to_the_limit_that_lessons_need():
    c = loaded("jupyterhub_config.py")
    limit = sizes.limit_mib(sizes.EVERYDAY) * 2**20
    assert c.Spawner.mem_limit == limit
    assert c.SystemdSpawner.unit_extra_properties["LimitDATA"] == str(limit)
    assert c.JupyterHub.spawner_class == "systemd"
    assert c.JupyterHub.bind_url.startswith("http://127.0.0.1:")
    text = (FOLDER / "README.md").read_text("utf-8")
    assert f"{limit // 2**20} MiB" in text
    assert f"{sizes.limit_mib(sizes.HUNGRY)} MiB" in text
    # systemdspawner expands braces in these
    assert not [word for word in (*c.Spawner.cmd, *c.Spawner.args) if "{" in word]


def test_the_demo_answers_this_machine_alone():
    one, other = loaded("demo_config.py"), loaded("demo_config.py")
    assert one.JupyterHub.bind_url.startswith("http://127.0.0.1:")
    passwords = one.SharedPasswordAuthenticator
    assert len(passwords.user_password) >= 8
    assert other.SharedPasswordAuthenticator.admin_password != passwords.admin_password


def test_begin_brings_what_it_can_and_starts_the_server_all_the_same(tmp_path):
    """Without a Python that has the course, the server is started, in a home that is closed."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PWD" "$@" >> "$0.said"\n[ "$2" = jupyterhub.singleuser ]\n')
    python.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    asked = ["sh", str(FOLDER / "begin.sh"), str(python), "my_lessons", "--port=1"]
    subprocess.run(asked, env={"HOME": str(home), "PATH": "/usr/bin:/bin"}, check=True)
    brought, served = (tmp_path / "python.said").read_text().splitlines()
    assert brought == f"{home} -m amp_lessons lab {home}/my_lessons --copy-only"
    assert served == f"{home} -m jupyterhub.singleuser --port=1"
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "my_lessons").is_dir()


def test_every_lesson_has_its_size_and_fits_its_limit():
    lessons = {path.name[:2] for path in (sizes.FILE.parents[1] / "notebooks").glob("[0-9][0-9]_*.ipynb")}
    assert set(sizes.measured()) == lessons == {*sizes.EVERYDAY, *sizes.HUNGRY}
    for number, lesson in sizes.measured().items():
        needed = max(lesson.asked_for_mib, lesson.resident_mib + sizes.server_mib())
        assert sizes.limit_mib([number]) >= needed
        assert sizes.guarantee_mib([number]) <= sizes.limit_mib([number])
