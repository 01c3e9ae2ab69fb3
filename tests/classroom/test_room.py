"""The live room behind a real hub: who is let in, what kernels may say, and what a class sees."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests

from amp_lessons import classroom, exercises, quizzes, views
from tests.classroom.hubs_with_a_room import REPOSITORY, environment, running_hub, wait_for
from tools.ports import free_port

pytest.importorskip("jupyterhub")
pytest.importorskip("configurable_http_proxy")
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(300)]

QUESTION = quizzes.question("scaling.floor")
VOTE = f"api/predictions/{QUESTION.id}"
REQUESTS = [
    ("PUT", "api/me", {"name": "Eve"}),
    ("DELETE", "api/me", None),
    ("PUT", VOTE, {"choice": 0}),
    ("PUT", "api/exercises/loss_scaler", {}),
    ("GET", "board", None),
    ("POST", "teach/end", {}),
]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    with running_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture
def teacher(hub):
    return hub.token("teacher", scopes=["access:services!service=room", "custom:amp-lessons:teach"])


@pytest.fixture
def board(hub):
    token = hub.token("reader")
    return lambda: hub.ask("GET", "board", token=token).json()


@pytest.mark.parametrize(("method", "path", "content"), REQUESTS, ids=lambda part: str(part))
def test_no_token_a_wrong_one_and_one_for_something_else_are_refused(hub, board, method, path, content):
    before = board()
    assert hub.ask(method, path, content).status_code in (401, 403)
    assert hub.ask(method, path, content, token="0" * 32).status_code == 403
    other = hub.token("eve", scopes=["users:activity!user"])
    assert hub.ask(method, path, content, token=other).status_code == 403
    assert hub.ask(method, path + "?token=" + hub.token("eve"), content).status_code in (401, 403)
    assert board() == before


def test_a_token_that_expired_or_was_taken_back_is_refused_at_once(hub):
    short, taken = hub.token("kim", expires_in=10), hub.learner("lee")
    assert hub.ask("PUT", "api/me", {}, short).status_code == 200
    wait_for(lambda: hub.ask("PUT", VOTE, {"choice": 0}, short).status_code == 403)
    assert hub.ask("PUT", VOTE, {"choice": 0}, taken).status_code == 200
    hub.revoke("lee", taken)
    assert hub.ask("PUT", VOTE, {"choice": 1}, taken).status_code == 403
    assert hub.ask("PUT", "api/me", {}, hub.admin).status_code == 403, "a service's token is nobody's vote"


def test_no_request_can_name_another_learner(hub, board):
    mallory = hub.learner("mallory", "Mallory")
    hub.learner("victim", "Victim")
    for names in ({"login": "victim"}, {"user": "victim"}, {"name": "victim"}):
        hub.ask("PUT", "api/exercises/decode_bits", names, mallory)
    hub.ask("PUT", "api/exercises/decode_bits?user=victim&login=victim", {}, mallory, Cookie="login=victim")
    (task,) = (each for each in board()["exercises"] if each["title"] == exercises.catalog()[0].title)
    assert task["names"] == ["Mallory"]
    hub.ask("DELETE", "api/me?user=victim", {"login": "victim"}, mallory)
    assert "Victim" in board()["named"]


def test_a_learner_cannot_do_what_the_teacher_does(hub, board):
    token = hub.learner("pupil", "Pupil")
    for action in ("open", "reveal", "close", "end"):
        assert hub.ask("POST", f"teach/{action}", {"id": QUESTION.id}, token).status_code == 403
    assert board()["prediction"] is None
    assert "Pupil" in board()["named"]
    assert "answered" not in board()


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b'"x"', b"{", b"\xff", b"[" * 1000, b'{"name": ' + b"9" * 900 + b"}"]
)
def test_nonsense_is_refused_and_breaks_nothing(hub, board, body):
    token = hub.token("nonsense")
    assert hub.ask("PUT", "api/me", body, token).status_code == 400
    assert board()["version"]


def test_more_than_a_kilobyte_is_not_even_read(hub, board):
    token = hub.learner("big")
    with contextlib.suppress(requests.ConnectionError):  # hung up while the rest was on its way
        assert hub.ask("PUT", "api/me", b'{"name": "' + b"x" * 2000 + b'"}', token).status_code in (400, 413)
    assert board()["version"]


def test_who_asks_without_end_is_slowed_down_and_nobody_else_is(hub):
    flood, other = hub.learner("flood"), hub.learner("other")
    statuses = [hub.ask("PUT", VOTE, {"choice": 0}, flood).status_code for _ in range(80)]
    assert statuses[0] == 200
    assert 429 in statuses
    assert hub.ask("PUT", VOTE, {"choice": 0}, other).status_code == 200


def test_thirty_vote_at_once(hub, board, teacher):
    tokens = [hub.learner(f"voter{i}") for i in range(30)]
    asked = quizzes.question("scaling.growth")
    assert hub.ask("POST", "teach/open", {"id": asked.id}, teacher).status_code == 200

    def vote(i):
        return hub.ask("PUT", f"api/predictions/{asked.id}", {"choice": i % 3}, tokens[i]).status_code

    with ThreadPoolExecutor(30) as pool:
        assert set(pool.map(vote, range(30))) == {200}
    shown = board()["prediction"]
    assert shown["answered"] == 30
    assert [each["now"] for each in shown["choices"]] == [10, 10, 10]
    assert hub.ask("POST", "teach/close", {}, teacher).status_code == 200


@pytest.fixture
def kernel(hub, monkeypatch):
    """Make this process a kernel of one of the hub's learners."""
    token = hub.token("grace")
    monkeypatch.setenv("AMP_LESSONS_ROOM", f"http://127.0.0.1:{hub.room}")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", token)
    monkeypatch.setenv("JUPYTERHUB_BASE_URL", "/")
    yield token
    classroom._close()


def test_a_kernel_takes_part_from_joining_to_leaving(hub, board, teacher, kernel):
    joined = classroom.join(name="Grace")
    assert joined.takes_part
    assert "Grace" in board()["named"]
    before = hub.ask("GET", "board", token=teacher).json()["answered"].get("scaling.order", 0)
    views.Quiz("scaling.order").choose("a")
    assert exercises.check("decode_bits", exercises.solution("decode_bits").function).passed
    wait_for(lambda: [each for each in board()["exercises"] if "Grace" in each["names"]])
    after = hub.ask("GET", "board", token=teacher).json()["answered"]["scaling.order"]
    assert after == before + 1
    assert not classroom.leave().takes_part
    assert "Grace" not in board()["named"]
    assert hub.ask("GET", "board", token=teacher).json()["answered"].get("scaling.order", 0) == before


def test_a_name_that_is_taken_is_said_in_words(hub, board, kernel):
    hub.learner("first", "Same Name")
    said = classroom.join(name="same name")
    assert not said.takes_part
    assert "somebody in this class has that name already" in said.message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's hub gives its services root's rights")
def test_the_room_of_roots_hub_has_no_rights_of_roots(hub):
    (room,) = (each for each in psutil.process_iter() if f":{hub.room}" in service_url(each))
    assert set(room.uids()) == set(room.gids()) == {65534}


def service_url(process):
    try:
        return process.environ().get("JUPYTERHUB_SERVICE_URL", "")
    except psutil.Error:
        return ""


def test_nothing_that_learners_do_is_written_down(hub):
    token = hub.learner("quiet", "Quiet One")
    hub.ask("PUT", "api/predictions/amp.adam_hides", {"choice": 0}, token)
    hub.ask("PUT", "api/exercises/fp32_island", {}, token)
    hub.ask("PUT", "api/exercises/no_such_thing", {}, token)
    for path in hub.folder.rglob("*"):
        kept = path.read_bytes() if path.is_file() else b""
        found = [word for word in (b"Quiet One", b"adam_hides", b"fp32_island", b"no_such") if word in kept]
        assert not found, f"{path} holds {found}"


def test_a_room_whose_hub_is_killed_ends():
    service = {"URL": f"http://127.0.0.1:{free_port()}", "PREFIX": "/services/room/", "NAME": "room"}
    named = {f"JUPYTERHUB_SERVICE_{name}": value for name, value in service.items()}
    env = {**environment(), **named, "JUPYTERHUB_API_TOKEN": "none", "JUPYTERHUB_CLIENT_ID": "service-room"}
    command = [sys.executable, "-c", _STARTS_A_ROOM]
    hub = subprocess.Popen(command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True)
    room = psutil.Process(int(hub.stdout.readline()))
    hub.kill()
    hub.wait()
    try:
        wait_for(lambda: has_ended(room))
    finally:
        if room.is_running():
            room.kill()


def has_ended(process):
    """Whether a process is gone, or would be if whoever adopted it had asked after it."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


# A hub, as far as the room can tell.
_STARTS_A_ROOM = """
import os, subprocess, sys, time
os.environ["AMP_LESSONS_HUB_PID"] = str(os.getpid())
print(subprocess.Popen([sys.executable, "-m", "classroom.room"]).pid, flush=True)
time.sleep(600)
"""
