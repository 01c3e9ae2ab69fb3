"""Take part in the live room of a class, if the teacher has one: ``classroom.join()``, ``classroom.leave()``.

Nothing is sent before ``join``. After it, each answer to a prediction and each exercise solved in this
notebook is sent to the class's own server, in the background; ``classroom/room`` in the repository serves it.
"""

from __future__ import annotations

import json
import os
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from amp_lessons.course.quizzes import Question, questions

__all__ = ["Standing", "join", "leave", "predicted", "solved"]

_outbox: Outbox | None = None

_NO_ROOM = (
    "There is no live room here: this kernel was not started by a JupyterHub that has one. If you are in a "
    "class, open the lesson through its JupyterHub; if your teacher wants a room, classroom/room/README.md "
    "in the course's repository says how."
)
_NOT_ANSWERING = "The class's room does not answer. You do not take part; classroom.join() tries again."
_WHAT_IS_SENT = (
    "From now on your answers to predictions and the exercises that you solve in this notebook are sent to "
    "the class's server. {shown} So that you count once, the server keeps your login beside them, in memory "
    "alone, until the class ends; whoever runs it could look there, and the hub's log notes when you sent "
    "something, though not what. classroom.leave() takes back what you sent."
)
_UNNAMED = "The class sees them counted, without a name."
_NAMED = (
    "The class sees the name {name!r} beside the exercises that you solve; answers to predictions are "
    "counted without it."
)


@dataclass(frozen=True)
class Standing:
    """Whether somebody takes part in the live room, under which name, and what that means in words."""

    takes_part: bool
    message: str
    name: str | None = None

    def __repr__(self) -> str:
        return self.message


def join(name: str | None = None) -> Standing:
    """Take part in the class's live room, unnamed or under ``name``; to join again changes the name.

    What cannot be is said in the ``message`` of what is returned. Raises TypeError if ``name`` is not text.
    """
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"a name is text, classroom.join(name='Ada') say, not {type(name).__name__}")
    way = wire()
    if way is None:
        return Standing(False, _NO_ROOM)
    try:
        reply = way.ask("PUT", "me", {"name": name})
    except UnreachableError:
        said = _NOT_ANSWERING
    else:
        if reply.status == 200:
            return _joined(way, name)
        said = _refused(reply)
    return Standing(_outbox is not None and not _outbox.closed, said)


def leave() -> Standing:
    """Take part no longer, and have the room forget everything that was sent."""
    _close()
    way = wire()
    if way is None:
        return Standing(False, "You do not take part in any room.")
    try:
        reply = way.ask("DELETE", "me")
    except UnreachableError as error:
        reply = Reply(503, str(error))
    if reply.status == 200:
        return Standing(False, "You take part no longer, and the room has forgotten what you sent.")
    return Standing(
        False,
        "Nothing is sent any more. The room could not be told to forget what you sent before: it will when "
        "the class ends, or at the next classroom.leave() that reaches it.",
    )


def predicted(question: Question, choice: int) -> str:
    """Report which answer was chosen to the room, if the learner takes part and ``question`` is the course's.

    It returns at once, with what the learner should know: usually nothing.
    """
    if questions().get(question.id) != question:  # a variant that was drawn: the room does not know it
        return ""
    return _report(f"predictions/{question.id}", {"choice": choice})


def solved(exercise_id: str) -> str:
    """Report to the room that an exercise was solved; return as ``predicted``."""
    return _report(f"exercises/{exercise_id}", {})


def _report(path: str, content: dict[str, int]) -> str:
    if _outbox is None:
        return ""
    _outbox.put(path, content)
    complaint = _outbox.complaint()
    if _outbox.closed:
        _close()
    return complaint


def _joined(way: Wire, name: str | None) -> Standing:
    global _outbox
    _close()
    _outbox = Outbox(way)
    shown = _UNNAMED if name is None else _NAMED.format(name=name)
    return Standing(True, f"You take part. {_WHAT_IS_SENT.format(shown=shown)}", name)


def _refused(reply: Reply) -> str:
    if reply.status == 400 and reply.message:
        return f"The room did not take that name: {reply.message}."
    if reply.status in (401, 403):
        return "The room did not let you in: restart your server in the hub's control panel, then join again."
    return f"{_NOT_ANSWERING} (It said {reply.status} {reply.message}.)"


def _close() -> None:
    global _outbox
    if _outbox is not None:
        _outbox.close()
    _outbox = None


_WAIT_S = 5.0
_MOST_BYTES = 10_000


class UnreachableError(Exception):
    """The room did not answer."""


@dataclass(frozen=True)
class Reply:
    """What the room said: a status as HTTP has them, and its reason, if it refused."""

    status: int
    message: str


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follow nowhere: the token is for the room alone."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse."""


# Not through a proxy that the environment names, either.
_OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect).open


@dataclass(frozen=True)
class Wire:
    """Where the room is, and the token by which it knows who asks."""

    url: str
    token: str = field(repr=False)

    def ask(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Reply:
        """Ask once, and wait at most seconds. Raises UnreachableError if there is no answer."""
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with _OPEN(request, timeout=_WAIT_S) as answer:
                return Reply(answer.status, "")
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, _message(error))
        except (OSError, ValueError) as error:
            raise UnreachableError(str(error)) from error


def wire(environment: Mapping[str, str] = os.environ) -> Wire | None:
    """Return the way to the room, as the hub names it to its learners' kernels; None outside a hub."""
    try:
        origin, token = environment["AMP_LESSONS_ROOM"], environment["JUPYTERHUB_API_TOKEN"]
    except KeyError:
        return None
    if urlsplit(origin).scheme not in ("http", "https"):
        return None
    base = environment.get("JUPYTERHUB_BASE_URL", "/").strip("/")
    return Wire("/".join(filter(None, [origin.rstrip("/"), base, "services/room/"])), token)


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(_MOST_BYTES))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


UNREACHABLE = (
    "The class's room cannot be reached, so it does not hear of what you do. Your lesson goes on without it; "
    "what is waiting is sent along with your next answer."
)
OVER = "The class has ended, or its room has forgotten you: classroom.join() takes part anew."
_SLOWER_S = 5.0  # until the next try, when the room is sent too much at once


class Outbox:
    """The newest of each thing that is to be sent, until it is. To put something in never waits or raises.

    A thread of its own sends it, so that no check and no click ever waits, until it is ``closed``.
    """

    def __init__(self, wire: Wire) -> None:
        """Wait for something to send."""
        self._wire = wire
        self._waiting: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._fresh = self.closed = False
        self._said: list[str] = []
        self._to_say: list[str] = []
        threading.Thread(target=self._work, name="amp-lessons-room", daemon=True).start()

    def put(self, path: str, content: dict[str, Any]) -> None:
        """Have something sent; it replaces what waits under the same path."""
        with self._changed:
            self._waiting[path] = content
            self._fresh = True
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self.closed = True
            self._changed.notify()

    def complaint(self) -> str:
        """Return what the learner should know and was not told yet, usually nothing: each sentence once."""
        with self._changed:
            said, self._to_say = " ".join(self._to_say), []
        return said

    def _work(self) -> None:
        while (waiting := self._next()) is not None:
            for path, content in waiting.items():
                if not self._sent(path, content):
                    break

    def _next(self) -> dict[str, dict[str, Any]] | None:
        """Wait until there is something new, and return all that is to be sent; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._fresh or self.closed)
            self._fresh = False
            return None if self.closed else dict(self._waiting)

    def _sent(self, path: str, content: dict[str, Any]) -> bool:
        """Send one thing; return whether to go on with the others."""
        try:
            status = self._wire.ask("PUT", path, content).status
        except UnreachableError:
            status = 503
        if status in (401, 403, 409):
            self._complain(OVER)
            self.close()
        elif status >= 500:
            self._complain(UNREACHABLE)
        elif status == 429:
            self._try_later()
        else:  # taken, or refused as something that this room does not know: once is enough
            self._done(path, content)
            return True
        return False

    def _done(self, path: str, content: dict[str, Any]) -> None:
        with self._changed:
            if self._waiting.get(path) is content:
                del self._waiting[path]

    def _try_later(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.closed, _SLOWER_S)
            self._fresh = True

    def _complain(self, sentence: str) -> None:
        with self._changed:
            if sentence not in self._said:
                self._said.append(sentence)
                self._to_say.append(sentence)
