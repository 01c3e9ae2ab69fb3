"""Whether this kernel's learner takes part in a class's live room, and what is sent if so."""

from __future__ import annotations

from dataclasses import dataclass

from amp_lessons.classroom.outbox import Outbox
from amp_lessons.classroom.wire import Reply, UnreachableError, Wire, wire
from amp_lessons.quizzes import Question, questions

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
        return Standing(_takes_part(), _NOT_ANSWERING)
    return _joined(way, name) if reply.status == 200 else Standing(_takes_part(), _refused(reply))


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
    """Have the room hear which answer was chosen, if the learner takes part and ``question`` is the course's.

    It returns at once, with what the learner should know: usually nothing.
    """
    if questions().get(question.id) != question:  # a variant that was drawn: the room does not know it
        return ""
    return _tell(f"predictions/{question.id}", {"choice": choice})


def solved(exercise_id: str) -> str:
    """Have the room hear that an exercise was solved; return as ``predicted``."""
    return _tell(f"exercises/{exercise_id}", {})


def _tell(path: str, content: dict[str, int]) -> str:
    if _outbox is None:
        return ""
    _outbox.put(path, content)
    complaint = _outbox.complaint()
    if _outbox.closed:
        _close()
    return complaint


def _takes_part() -> bool:
    return _outbox is not None and not _outbox.closed


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
