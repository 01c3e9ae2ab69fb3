"""What is on its way to the room. A thread of its own sends it, so that no check and no click ever waits."""

from __future__ import annotations

import threading
from typing import Any

from amp_lessons.classroom.wire import UnreachableError, Wire

UNREACHABLE = (
    "The class's room cannot be reached, so it does not hear of what you do. Your lesson goes on without it; "
    "what is waiting is sent along with your next answer."
)
OVER = "The class has ended, or its room has forgotten you: classroom.join() takes part anew."
_SLOWER_S = 5.0  # until the next try, when the room hears too much at once


class Outbox:
    """The newest of each thing that is to be sent, until it is. To put something in never waits or raises."""

    def __init__(self, wire: Wire) -> None:
        """Wait for something to send."""
        self._wire = wire
        self._waiting: dict[str, dict[str, Any]] = {}
        self._changed = threading.Condition()
        self._fresh = self._closed = False
        self._said: list[str] = []
        self._to_say: list[str] = []
        threading.Thread(target=self._work, name="amp-lessons-room", daemon=True).start()

    @property
    def closed(self) -> bool:
        """Whether nothing will be sent any more."""
        return self._closed

    def put(self, path: str, content: dict[str, Any]) -> None:
        """Have something sent; it replaces what waits under the same path."""
        with self._changed:
            self._waiting[path] = content
            self._fresh = True
            self._changed.notify()

    def close(self) -> None:
        """Send nothing more."""
        with self._changed:
            self._closed = True
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
            self._changed.wait_for(lambda: self._fresh or self._closed)
            self._fresh = False
            return None if self._closed else dict(self._waiting)

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
            self._changed.wait_for(lambda: self._closed, _SLOWER_S)
            self._fresh = True

    def _complain(self, sentence: str) -> None:
        with self._changed:
            if sentence not in self._said:
                self._said.append(sentence)
                self._to_say.append(sentence)
