"""Ranks as threads of one process, and the network between them, which remembers what was sent.

Nothing here waits for a clock: ranks that wait for each other are noticed when the last of them begins to.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from amp_lessons._base.text.describing import describe
from amp_lessons.course.exercises import bed_there

_SENT_PER_RANK = 64  # times the number of ranks: the longest way round a ring needs a small part of it


class _Stuck(BaseException):
    """Raised in a rank that would otherwise wait forever."""


class _Network:
    """Mailboxes between ranks; ``sent`` lists each rank's messages, ``waiting`` says who waits for whom."""

    def __init__(self, ranks: int) -> None:
        self.sent: list[list[tuple[int, Tensor]]] = [[] for _ in range(ranks)]
        self.mail: defaultdict[tuple[int, int], deque[Tensor]] = defaultdict(deque)  # by sender and receiver
        self.waiting: dict[int, int] = {}
        self.results: list[Any] = [None] * ranks
        self.errors: dict[int, BaseException] = {}
        self._running = set(range(ranks))
        self._changed = threading.Condition()

    def be(self, rank: int, function: Callable[..., Any], chunks: list[Tensor]) -> None:
        """Be a rank, to the end."""
        try:
            send, recv = partial(self._send, rank), partial(self._receive, rank)
            self.results[rank] = function(chunks, rank, len(self.sent), send, recv)
        except _Stuck:
            pass
        except BaseException as error:
            self.errors[rank] = error
        with self._changed:
            self._running.discard(rank)
            self._changed.notify_all()

    def _send(self, rank: int, tensor: Any, to: Any) -> None:
        self._require_rank(rank, to)
        if not isinstance(tensor, Tensor):
            raise TypeError(f"send(tensor, to) was given {describe(tensor)} in the place of a tensor")
        if len(self.sent[rank]) >= _SENT_PER_RANK * len(self.sent):
            raise RuntimeError(f"rank {rank} had sent {len(self.sent[rank])} tensors and went on")
        with self._changed:
            self.sent[rank].append((to, tensor.detach().clone()))
            self.mail[rank, to].append(tensor.detach().clone())
            self._changed.notify_all()

    def _receive(self, rank: int, source: Any) -> Tensor:
        self._require_rank(rank, source)
        with self._changed:
            self.waiting[rank] = source
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.mail[source, rank] or self._all_wait())
            if not self.mail[source, rank]:
                raise _Stuck
            del self.waiting[rank]
            return self.mail[source, rank].popleft()

    def _all_wait(self) -> bool:
        """Say whether each rank that has not ended waits for what nobody has sent."""
        return all(each in self.waiting and not self.mail[self.waiting[each], each] for each in self._running)

    def _require_rank(self, rank: int, other: Any) -> None:
        if type(other) is not int or not 0 <= other < len(self.sent) or other == rank:
            whom = f"rank {rank} of {len(self.sent)} cannot send to, or receive from, {describe(other)}"
            raise ValueError(f"{whom}: ranks are ints modulo world_size, and a single one talks to nobody")


def on_ranks(function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call ``function(chunks, rank, ranks, send, recv)`` on every rank, each with chunks of its own.

    Returns the results, None where a rank was stopped, and what the network saw. Raises what the lowest rank
    raised that raised anything.
    """
    return bed_there.call(partial(_on_ranks, function), args, kwargs)


def _on_ranks(function: Callable[..., Any], given: list[list[Tensor]]) -> dict[str, Any]:
    network = _Network(len(given))
    threads = [
        threading.Thread(target=network.be, args=(rank, function, chunks), daemon=True)
        for rank, chunks in enumerate(given)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if network.errors:
        raise network.errors[min(network.errors)]
    unread = sorted(pair for pair, mail in network.mail.items() if mail)
    stuck = sorted(network.waiting.items())
    return {"sent": network.sent, "stuck": stuck, "unread": unread, "results": network.results}
