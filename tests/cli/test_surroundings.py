"""What the machine makes necessary to open JupyterLab on it, and what the learner is told."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from amp_lessons.cli.lab import surroundings
from amp_lessons.cli.lab.surroundings import Surroundings, free_port, look, start

OVER_SSH = Surroundings(ssh=("203.0.113.5", "50000", "10.0.0.7", "22"), user="ada")


@pytest.fixture
def taken():
    """A port that something listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield listening.getsockname()[1]


MACHINES = {
    "one's own": (Surroundings(), "localhost"),
    "one's own, where one is root": (Surroundings(root=True), "localhost"),
    "one's own, where one is root and lets others in": (Surroundings(root=True), "0.0.0.0"),
    "one behind ssh": (OVER_SSH, "localhost"),
    "one behind ssh on another port": (replace(OVER_SSH, ssh=(*OVER_SSH.ssh[:3], "2222")), "localhost"),
    "a container": (Surroundings(container=True), "localhost"),
    "a container that can be reached": (Surroundings(container=True), "0.0.0.0"),
    "one without a screen": (Surroundings(screen=False), "localhost"),
    "one whose home is only read": (Surroundings(home_writable=False), "localhost"),
}


def test_a_machine_has_its_options_and_sentences(golden, monkeypatch):
    monkeypatch.setattr(surroundings, "free_port", lambda port: port)
    told = []
    for name, (here, ip) in MACHINES.items():
        made = start(here, 8888, ip, no_browser=False)
        told += [f"--- {name}", " ".join(made.options), *made.sentences, *made.environment]
    golden("surroundings.txt", "\n".join(told))


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
