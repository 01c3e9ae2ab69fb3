"""A learner's side of the live room: nothing is sent unasked, and nothing there disturbs a lesson."""

from __future__ import annotations

import html
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from amp_lessons import classroom, clinic, exercises, quizzes, views
from amp_lessons.course.classroom import wire
from tests.classroom.hubs_with_a_room import wait_for

TOKEN = "the-hubs-own-token"


class Room(ThreadingHTTPServer):
    """Something that answers as a room does, in ways to be chosen."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.heard, self.statuses, self.hold = [], {}, threading.Event()
        self.hold.set()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def paths(self):
        return [path for _, path, _, _ in self.heard]

    def end(self):
        self.hold.set()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    def _answer(self):
        content = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "null")
        path = self.path.removeprefix("/base/services/room/api/")
        self.server.heard.append((self.command, path, content, self.headers["Authorization"]))
        self.server.hold.wait(30)
        planned = self.server.statuses.get(path, [])
        self.send_response(planned.pop(0) if planned else 200)
        self.send_header("Location", self.server.url + "/elsewhere")
        self.end_headers()
        self.wfile.write(b'{"message": "a reason"}')

    do_PUT = do_DELETE = do_GET = _answer  # noqa: N815

    def log_message(self, *_):
        pass


@pytest.fixture
def room(monkeypatch):
    room = Room()
    monkeypatch.setenv("AMP_LESSONS_ROOM", room.url)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", TOKEN)
    monkeypatch.setenv("JUPYTERHUB_BASE_URL", "/base/")
    yield room
    room.hold.set()
    classroom._close()
    room.end()


def check_solved():
    return exercises.check("decode_bits", exercises.solution("decode_bits").function)


def choose(question_id="scaling.floor", letter="a"):
    quiz = views.Quiz(question_id)
    quiz.choose(letter)
    return html.unescape(quiz._why.value)


def test_outside_a_hub_it_says_what_is_needed(monkeypatch):
    monkeypatch.delenv("AMP_LESSONS_ROOM", raising=False)
    said = classroom.join()
    assert not said.takes_part
    assert "JupyterHub" in repr(said)
    assert not classroom.leave().takes_part


def test_the_token_stays_out_of_sight_and_goes_only_to_web_addresses():
    environment = {"AMP_LESSONS_ROOM": "http://here:1", "JUPYTERHUB_API_TOKEN": TOKEN}
    assert TOKEN not in repr(wire(environment))
    assert wire(environment).url == "http://here:1/services/room/"
    assert wire({**environment, "AMP_LESSONS_ROOM": "file:///etc"}) is None
    assert wire({"AMP_LESSONS_ROOM": "http://here:1"}) is None


def test_nothing_is_sent_before_joining_nor_after_leaving(room):
    choose()
    assert check_solved().passed
    assert room.heard == []
    classroom.join()
    classroom.leave()
    choose()
    assert check_solved().passed
    assert [each[:3] for each in room.heard] == [("PUT", "me", {"name": None}), ("DELETE", "me", None)]


def test_what_is_sent_is_the_answer_and_the_solved_exercise_and_no_more(room):
    said = classroom.join(name="Ada")
    assert (said.takes_part, said.name) == (True, "Ada")
    assert "'Ada'" in said.message
    choose(letter="c")
    exercises.check("decode_bits", lambda bits: None)
    assert check_solved().passed
    wait_for(lambda: len(room.heard) == 3)
    assert room.heard == [
        ("PUT", "me", {"name": "Ada"}, f"token {TOKEN}"),
        ("PUT", "predictions/scaling.floor", {"choice": 2}, f"token {TOKEN}"),
        ("PUT", "exercises/decode_bits", {}, f"token {TOKEN}"),
    ]


def test_a_question_that_was_drawn_stays_in_the_notebook(room):
    classroom.join()
    choices = quizzes.Choice("a", "b", True), quizzes.Choice("c", "d")
    drawn = quizzes.Question("scaling.floor", "Another?", choices)
    views.Quiz(drawn).choose("a")
    diagnoses = clinic.patients()[0].diagnoses
    choices = tuple(quizzes.Choice(each.text, each.because, each.right) for each in diagnoses)
    views.Quiz(quizzes.Question(clinic.patients()[0].id, "?", choices)).choose("a")
    choose()
    wait_for(lambda: len(room.heard) == 2)
    assert room.paths == ["me", "predictions/scaling.floor"]


def test_a_room_that_does_not_answer_delays_nothing(room):
    classroom.join()
    room.hold.clear()
    begun = time.monotonic()
    for letter in "abc" * 100:
        assert classroom.predicted(quizzes.question("scaling.floor"), "abc".index(letter)) == ""
    assert time.monotonic() - begun < 2  # the room takes thirty seconds for one
    room.hold.set()
    wait_for(lambda: room.heard[-1][2] == {"choice": 2})
    assert len(room.heard) < 10, "what was replaced while it waited is not sent"


def test_a_room_that_is_gone_is_mentioned_once_and_hears_all_when_it_is_back(room):
    classroom.join()
    room.statuses["predictions/scaling.floor"] = [503, 503]
    said = [choose(letter="a")]
    wait_for(lambda: len(room.heard) == 2)
    wait_for(lambda: classroom._outbox._to_say)
    said.append(choose(letter="b"))
    wait_for(lambda: len(room.heard) == 3)
    said.append(choose("scaling.growth"))
    wait_for(lambda: len(room.heard) == 5)
    assert [classroom.UNREACHABLE in each for each in said] == [False, True, False]
    assert sorted(room.paths[-2:]) == ["predictions/scaling.floor", "predictions/scaling.growth"]


def test_a_check_passes_and_says_so_when_nobody_listens(room):
    classroom.join()
    room.end()
    choose()
    wait_for(lambda: classroom._outbox._to_say)
    report = check_solved()
    assert report.passed
    assert [(each.code, each.message) for each in report.findings if each.kind == "note"] == [
        ("live_room", classroom.UNREACHABLE)
    ]
    assert [each.code for each in check_solved().findings if each.kind == "note"] == []


@pytest.mark.parametrize("status", [401, 403, 409])
def test_when_the_class_is_over_that_is_said_once_and_nothing_more_is_sent(room, status):
    classroom.join()
    room.statuses["predictions/scaling.floor"] = [status]
    choose()
    wait_for(lambda: classroom._outbox.closed and classroom._outbox._to_say)
    assert classroom.OVER in choose("scaling.growth")
    assert classroom.OVER not in choose("scaling.growth")
    assert room.paths == ["me", "predictions/scaling.floor"]


def test_a_room_that_hears_too_much_is_asked_again_later(room, monkeypatch):
    monkeypatch.setattr(classroom, "_SLOWER_S", 0.05)
    classroom.join()
    room.statuses["predictions/scaling.floor"] = [429, 429]
    choose()
    wait_for(lambda: len(room.heard) == 4)
    assert classroom.UNREACHABLE not in choose("scaling.growth")


def test_what_the_room_does_not_know_is_sent_once(room):
    classroom.join()
    room.statuses["predictions/scaling.floor"] = [404]
    choose()
    choose("scaling.growth")
    wait_for(lambda: len(room.heard) == 3)
    wait_for(lambda: not classroom._outbox._waiting)
    assert classroom._outbox.complaint() == ""


def test_the_token_follows_no_redirection_and_no_proxy(room, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    room.statuses["me"] = [302]
    assert not classroom.join().takes_part
    assert room.paths == ["me"]


def test_what_the_room_refuses_is_said_in_words(room):
    room.statuses["me"] = [400, 403, 500]
    assert classroom.join("x").message == "The room did not take that name: a reason."
    assert "restart your server" in classroom.join().message
    assert "does not answer" in classroom.join().message
    with pytest.raises(TypeError, match=r"name='Ada'"):
        classroom.join(5)


def test_to_leave_a_room_that_does_not_answer_sends_nothing_more(room):
    classroom.join()
    room.statuses["me"] = [500]
    assert "could not be told" in classroom.leave().message
    choose()
    assert room.paths == ["me", "me"]
