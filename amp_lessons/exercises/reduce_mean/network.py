"""Ranks as threads of one process, and the network between them, which remembers what was sent.

Nothing here waits for a clock: ranks that wait for each other are noticed when the last of them begins to.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import torch
from torch import Tensor

from amp_lessons.audit.findings import Finding, failed
from amp_lessons.exercises.containment import learners_code
from amp_lessons.text.describing import describe

_JOIN_S = 0.05
_SENT_PER_RANK = 64  # times the number of ranks: the longest way round a ring needs a small part of it


class _Stopped(BaseException):
    """Raised in a rank that would otherwise wait forever."""


@dataclass(frozen=True)
class Message:
    """A copy of what one rank sent to another."""

    to: int
    values: Tensor

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor that was sent."""
        return self.values.numel() * self.values.element_size()


class Network:
    """Mailboxes between ranks; ``sent`` lists each rank's messages, ``stuck`` says who waits for whom."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.sent: list[list[Message]] = [[] for _ in range(ranks)]
        self.stuck: dict[int, int] = {}
        self.faults: dict[int, Finding] = {}
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
            self._refuse(rank, *_no_tensor(tensor))
        self._require_rank(rank, to)
        if len(self.sent[rank]) >= _SENT_PER_RANK * self.ranks:
            self._refuse(rank, *_without_end(len(self.sent[rank])))
        copy = tensor.detach().clone()
        with self._changed:
            self.sent[rank].append(Message(int(to), copy))
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

    def close(self) -> None:
        """End every rank that waits."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _look_whether_stuck(self) -> None:
        """End the remaining ranks if each of them waits for a message that no running rank can send."""
        idle = self._running == self._waiting.keys()
        if self._running and idle and not any(self._mail[s, r] for r, s in self._waiting.items()):
            self.stuck = self.stuck or dict(sorted(self._waiting.items()))
            self._over = True
            self._changed.notify_all()

    def _require_rank(self, rank: int, other: Any) -> None:
        right = isinstance(other, int) and not isinstance(other, bool) and 0 <= other < self.ranks
        if not right or other == rank:
            self._refuse(rank, *_no_such_rank(rank, self.ranks, other))

    def _refuse(self, rank: int, code: str, message: str, hint: str) -> NoReturn:
        self.faults[rank] = failed(code, message, hint)
        raise _Stopped


def _no_tensor(sent: Any) -> tuple[str, str, str]:
    return "sends_no_tensor", f"send was given {describe(sent)}", "write send(tensor, to), the tensor first"


def _no_such_rank(rank: int, ranks: int, other: Any) -> tuple[str, str, str]:
    return (
        "no_such_rank",
        f"rank {rank} of {ranks} was to send to, or receive from, {describe(other)}",
        "ranks are ints from 0 to world_size - 1, and none talks to itself: take the neighbour modulo "
        "world_size, and with a single rank send nothing",
    )


def _without_end(count: int) -> tuple[str, str, str]:
    return "sends_without_end", f"one rank had sent {count} tensors and went on", "2 (world_size - 1) will do"


def on_ranks(network: Network, function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> list[Any]:
    """Call ``function(*arguments[rank], send, recv)`` on every rank; return the results.

    Raises what the lowest rank raised that raised anything. A rank's result is None where it was stopped.
    """
    results: list[Any] = [None] * network.ranks
    errors: dict[int, BaseException] = {}

    def be(rank: int) -> None:
        def send(tensor: Any, to: Any) -> None:
            network.send(rank, tensor, to)

        def recv(source: Any) -> Tensor:
            return network.receive(rank, source)

        try:
            results[rank] = learners_code.enter(function, *arguments[rank], send, recv)
        except _Stopped:
            pass
        except BaseException as error:
            errors[rank] = error
        finally:
            network.leave(rank)

    threads = [threading.Thread(target=be, args=(rank,), daemon=True) for rank in range(network.ranks)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_JOIN_S)  # in slices: the time limit is to find this thread
    finally:
        network.close()
    if errors:
        raise errors[min(errors)]
    return results


# --- gradients of several ranks: what each of them holds, cut into unequal chunks, and the mean in fp64


@dataclass(frozen=True)
class Scenario:
    """One reduction. ``gradients`` are (ranks, elements), ``lengths`` those of the chunks."""

    name: str
    gradients: Tensor
    lengths: tuple[int, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks, and of chunks."""
        return len(self.lengths)

    @property
    def what(self) -> str:
        """The name of this reduction and its number of ranks, as a message names them."""
        ranks = "1 rank" if self.ranks == 1 else f"{self.ranks} ranks"
        return f"for {self.name} on {ranks}"

    def chunks(self) -> list[list[Tensor]]:
        """Return the chunks of every rank, each time new ones."""
        return [[each.clone() for each in row.split(list(self.lengths))] for row in self.gradients]

    @cached_property
    def mean(self) -> Tensor:
        """The mean over ranks in fp64."""
        return self.gradients.double().mean(0)

    @cached_property
    def tolerance(self) -> Tensor:
        """How far sums in fp32 may be off: the unit of rounding per addition and division, twice that.

        It is by the magnitudes that were added, not by what is left of them (N. J. Higham, Accuracy and
        Stability of Numerical Algorithms, 2002, 4.2).
        """
        return 2 * (self.ranks + 1) * 2.0**-24 * self.gradients.double().abs().mean(0)


def scenarios() -> list[Scenario]:
    """Draw the reductions of a check: sizes and seeds that hide nothing, one poisoned, the largest last."""
    return [
        _drawn("fp32 gradients", 2, (4, 7), torch.float32),
        _drawn("bf16 gradients", 3, (3, 1, 6), torch.bfloat16),
        _cancelling(),
        _drawn("fp16 gradients whose sum fp16 cannot hold", 4, (2, 5, 3, 1), torch.float16, size=6e4),
        _drawn("fp32 gradients", 1, (5,), torch.float32),
        _drawn("gradients with an empty chunk", 3, (4, 0, 2), torch.float32),
        _poisoned(),
        _drawn("fp32 gradients", 5, (9, 2, 4, 1, 7), torch.float32),
    ]


def _drawn(
    name: str, ranks: int, lengths: tuple[int, ...], dtype: torch.dtype, size: float = 1.0
) -> Scenario:
    draw = torch.Generator().manual_seed(ranks * 100 + len(name))
    shape = ranks, sum(lengths)
    values = torch.rand(shape, generator=draw).mul(0.5).add(0.5)  # of one sign: sums grow with every rank
    uneven = torch.rand(shape, generator=draw).mul(-3 if size == 1 else -0.1).exp()
    return Scenario(name, (values * uneven * size).to(dtype), lengths)


def _cancelling() -> Scenario:
    gradients = torch.tensor([[256.0, 1.0, -256.0], [1.0, 256.0, 1.0], [-256.0, -256.0, 256.0]])
    return Scenario("256 + 1 - 256 in bf16", gradients.bfloat16(), (1, 1, 1))


def _poisoned() -> Scenario:
    gradients = _drawn("", 3, (3, 2, 4), torch.float16).gradients
    gradients[1, 4] = torch.inf
    return Scenario("gradients of which one is inf", gradients, (3, 2, 4))
