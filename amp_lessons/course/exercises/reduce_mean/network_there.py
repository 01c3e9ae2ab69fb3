"""Ranks as threads of one process, and the network between them, which remembers what was sent.

Nothing here waits for a clock: ranks that wait for each other are noticed when the last of them begins to.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there

_SENT_PER_RANK = 64  # times the number of ranks: the longest way round a ring needs a small part of it


class _Stopped(BaseException):
    """Raised in a rank that would otherwise wait forever."""


class _Network:
    """Mailboxes between ranks; ``sent`` lists each rank's messages, ``stuck`` says who waits for whom."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent: list[list[tuple[int, Tensor]]] = [[] for _ in range(ranks)]
        self.stuck: list[tuple[int, int]] = []
        self.faults: dict[int, tuple[str, Any]] = {}
        self._mail: defaultdict[tuple[int, int], deque[Tensor]] = defaultdict(deque)
        self._waiting: dict[int, int] = {}
        self._running = set(range(ranks))
        self._over = False
        self._changed = threading.Condition()

    @property
    def unread(self) -> list[tuple[int, int]]:
        """The pairs (sender, receiver) with messages that were never received."""
        return sorted(pair for pair, mail in self._mail.items() if mail)

    def send(self, rank: int, tensor: Any, to: Any) -> None:
        """Put a copy into a mailbox; what cannot be sent ends the rank."""
        if not isinstance(tensor, Tensor):
            self._refuse(rank, "sends_no_tensor", describe(tensor))
        self._require_rank(rank, to)
        if len(self.sent[rank]) >= _SENT_PER_RANK * self.ranks:
            self._refuse(rank, "sends_without_end", len(self.sent[rank]))
        copy = tensor.detach().clone()
        with self._changed:
            self.sent[rank].append((int(to), copy))
            self._mail[rank, int(to)].append(copy.clone())
            self._changed.notify_all()

    def receive(self, rank: int, source: Any) -> Tensor:
        """Wait for the next tensor from ``source``."""
        self._require_rank(rank, source)
        mail = self._mail[int(source), rank]
        with self._changed:
            self._waiting[rank] = int(source)
            while not mail:
                self._look_whether_stuck()
                if self._over:
                    raise _Stopped
                self._changed.wait()
            del self._waiting[rank]
            return mail.popleft()

    def leave(self, rank: int) -> None:
        """Note that a rank has ended, for whatever reason."""
        with self._changed:
            self._running.discard(rank)
            self._waiting.pop(rank, None)
            self._look_whether_stuck()

    def _look_whether_stuck(self) -> None:
        """End the remaining ranks if each of them waits for a message that no running rank can send."""
        idle = self._running == self._waiting.keys()
        if self._running and idle and not any(self._mail[s, r] for r, s in self._waiting.items()):
            self.stuck = self.stuck or sorted(self._waiting.items())
            self._over = True
            self._changed.notify_all()

    def _require_rank(self, rank: int, other: Any) -> None:
        right = isinstance(other, int) and not isinstance(other, bool) and 0 <= other < self.ranks
        if not right or other == rank:
            self._refuse(rank, "no_such_rank", describe(other))

    def _refuse(self, rank: int, code: str, seen: Any) -> NoReturn:
        self.faults[rank] = code, seen
        raise _Stopped


def on_ranks(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call ``function(chunks, rank, ranks, send, recv)`` on every rank, each with chunks of its own.

    Returns the results and what the network saw. Raises what the lowest rank raised that raised anything. A
    rank's result is None where it was stopped.
    """
    return bed_there.call(partial(_on_ranks, function), args, kwargs)


def _on_ranks(function: Callable[..., Any], given: list[list[Tensor]]) -> dict[str, Any]:
    ranks = len(given)
    network, results, errors = _Network(ranks), [None] * ranks, {}

    def be(rank: int) -> None:
        send, recv = partial(network.send, rank), partial(network.receive, rank)
        try:
            results[rank] = function(given[rank], rank, ranks, send, recv)
        except _Stopped:
            pass
        except BaseException as error:
            errors[rank] = error
        finally:
            network.leave(rank)

    threads = [threading.Thread(target=be, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[min(errors)]
    told = {"sent": network.sent, "stuck": network.stuck, "unread": network.unread, "faults": network.faults}
    return {**told, "results": results}
