"""Work that takes seconds goes on beside the kernel, and of several requests only the latest counts."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

_QUIET_S = 0.15  # whoever steps through a list passes what lies between faster than this

Work = Callable[["Ticket"], Iterator[Any]]


class SupersededError(Exception):
    """Something newer was asked for; nobody waits for this any more."""


class Ticket:
    """One request: a piece of work may ask it whether to go on."""

    def __init__(self) -> None:
        self.superseded = threading.Event()

    def check(self) -> None:
        """Raise SupersededError if something newer was asked for; else do nothing."""
        if self.superseded.is_set():
            raise SupersededError


class Latest:
    """Run work in a thread of its own, one at a time, and hand over what it yields.

    Work is a function of a ``Ticket`` that yields results. They are handed to ``deliver`` in the thread that
    asks: by its event loop, or inside ``wait``. An exception that ends the work is handed over like a result;
    results of work that is no longer the latest are dropped.
    """

    def __init__(self, deliver: Callable[[Any], None]) -> None:
        self._deliver = deliver
        self._found: deque[tuple[Ticket, Any]] = deque()
        self._ticket = Ticket()
        self._work: Work | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._lock = threading.Lock()

    def ask(self, work: Work) -> None:
        """Begin ``work`` soon; what was asked for before is given up."""
        with self._lock:
            self._ticket.superseded.set()
            self._ticket, self._work = Ticket(), work
            if self._idle.is_set():
                self._idle.clear()
                threading.Thread(target=self._run, args=(_running_loop(),), daemon=True).start()

    def wait(self) -> None:
        """Wait until the latest work is done, and deliver what it found."""
        self._idle.wait()
        self._drain()

    def _run(self, loop: asyncio.AbstractEventLoop | None) -> None:
        while True:
            with self._lock:
                ticket, work, self._work = self._ticket, self._work, None
                if work is None:
                    self._idle.set()
                    return
            if not ticket.superseded.wait(_QUIET_S):
                for result in _results(work, ticket):
                    self._found.append((ticket, result))
                    if loop is not None and not loop.is_closed():
                        loop.call_soon_threadsafe(self._drain)
                    if ticket.superseded.is_set():
                        break

    def _drain(self) -> None:
        while self._found:
            ticket, result = self._found.popleft()
            if ticket is self._ticket:
                self._deliver(result)


def _results(work: Work, ticket: Ticket) -> Iterator[Any]:
    try:
        yield from work(ticket)
    except SupersededError:
        return
    except Exception as error:
        yield error


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
