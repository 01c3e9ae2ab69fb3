"""What the machine makes necessary to open JupyterLab on it, and what the learner is told."""

from __future__ import annotations

import socket

import pytest

from amp_lessons.cli.lab import surroundings
from amp_lessons.cli.lab.surroundings import Surroundings, free_port, look, start, tunnel

OVER_SSH = Surroundings(ssh=("203.0.113.5", "50000", "10.0.0.7", "22"), user="ada")


@pytest.fixture
def taken():
    """A port that something listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


def started(here, port=0, ip="localhost", no_browser=False):
    return start(here, port or free_port(20_000), ip, no_browser=no_browser)


def test_on_ones_own_machine_nothing_is_said():
    made = started(Surroundings())
    assert made.sentences == ()
    assert made.environment == {}
    assert [option.split("=")[0] for option in made.options] == ["--port", "--ServerApp.ip"]


def test_a_port_that_is_taken_gives_way_to_the_next(taken):
    made = start(Surroundings(), taken, "localhost", no_browser=False)
    free = int(made.options[0].removeprefix("--port="))
    assert free > taken
    assert made.sentences == (
        f"Port {taken} is taken, perhaps by another window of the course: this one uses {free}.",
    )


def test_where_no_port_is_free_that_is_said(taken, monkeypatch):
    monkeypatch.setattr(surroundings, "_PORTS_TO_TRY", 1)
    with pytest.raises(OSError, match=f"no port from {taken} to {taken} is free; name another: --port="):
        free_port(taken)
    with pytest.raises(OSError, match="no port"):
        free_port(99_999)


def test_root_is_let_in_and_told_why_that_is_safe():
    made = started(Surroundings(root=True))
    assert "--allow-root" in made.options
    assert "--ServerApp.ip=localhost" in made.options
    assert "localhost alone and asks for a token" in made.sentences[0]


def test_root_who_lets_other_machines_in_is_told_what_that_means():
    made = started(Surroundings(root=True), ip="0.0.0.0")
    assert "--ServerApp.ip=0.0.0.0" in made.options
    assert "whoever has the token can do anything" in made.sentences[0]
    assert "alone" not in made.sentences[0]


def test_over_ssh_the_tunnel_is_told_and_no_browser_opens_there():
    made = started(OVER_SSH, port=(port := free_port(21_000)))
    assert "--no-browser" in made.options
    assert f"`ssh -N -L {port}:localhost:{port} ada@10.0.0.7`" in made.sentences[0]


def test_the_tunnel_takes_the_port_that_ssh_came_in_by():
    here = Surroundings(ssh=("203.0.113.5", "50000", "10.0.0.7", "2222"), user="ada")
    assert tunnel(here, 8888) == "ssh -N -L 8888:localhost:8888 -p 2222 ada@10.0.0.7"


def test_a_container_is_told_how_to_be_reached_unless_it_is():
    assert "docker run -p" in started(Surroundings(container=True)).sentences[0]
    assert started(Surroundings(container=True), ip="0.0.0.0").sentences == ()


@pytest.mark.parametrize(("screen", "no_browser"), [(True, False), (False, True)])
def test_a_browser_opens_where_there_is_a_screen(screen, no_browser):
    assert ("--no-browser" in started(Surroundings(screen=screen)).options) is no_browser


def test_a_home_that_cannot_be_written_to_is_replaced_for_jupyter():
    made = started(Surroundings(home_writable=False))
    assert {"JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR"} <= made.environment.keys()
    assert made.sentences == (surroundings.NO_HOME,)


def test_this_machine_is_looked_at(monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.5 50000 10.0.0.7 22")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "JUPYTERHUB_SERVICE_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    here = look()
    assert here.ssh == OVER_SSH.ssh
    assert (here.root, here.screen, here.in_hub) == (True, False, False)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    assert (look().screen, look().in_hub) == (True, True)


def test_a_user_without_a_name_is_no_error(monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert look().user == "you"
