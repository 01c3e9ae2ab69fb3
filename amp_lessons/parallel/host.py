"""The process that hosts the ranks: it imports PyTorch once, forks the ranks, watches and ends them.

It has one thread and runs no operation of PyTorch's, so a fork of it is safe, which a fork of a notebook's
kernel is not; and a fork takes a hundredth of the time in which a new Python imports PyTorch. It ends when
the notebook does, by whatever means, or when nobody has asked anything of it for a while.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import selectors
import shutil
import signal
import struct
import time
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from amp_lessons.parallel import rank as ranks
from amp_lessons.parallel.job import ACCEPTED, READY, Ending, Job, Kind
from amp_lessons.parallel.rank import RAISED

_POLL_S = 0.05
_OTHERS_MAY_END_S = 0.3  # after the first failure: what comes in this time is told too


class NotebookGoneError(Exception):
    """The process that asked for the results has ended, or has closed the connection."""


def main(descriptor: int, idle_s: float) -> None:
    """Serve the notebook at the socket's other end until it is gone, or silent for ``idle_s`` seconds."""
    parent = os.getppid()
    connection = Connection(descriptor)
    _preload()
    connection.send_bytes(READY)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 2)  # until here it said why it could not start
    os.chdir("/")  # so that the notebook's folder can be moved or removed
    with contextlib.suppress(NotebookGoneError, EOFError, OSError):
        while _wait_for_job(connection, parent, idle_s):
            job = pickle.loads(connection.recv_bytes())
            connection.send_bytes(ACCEPTED)
            connection.send_bytes(pickle.dumps(_run(job, connection, parent)))  # the endings of its ranks


def _preload() -> None:
    """Import what training on several ranks needs: each rank would take seconds for it, on its own."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first one imports torch._dynamo
    gc.freeze()  # what is imported stays, and no rank looks through it
    gc.enable()


def _wait_for_job(connection: Connection, parent: int, idle_s: float) -> bool:
    """Wait for the next job; False when the time without one is over."""
    give_up = time.monotonic() + idle_s
    while time.monotonic() < give_up:
        if connection.poll(1.0):
            return True
        _check(parent)
    return False


def _check(parent: int) -> None:
    """Raise NotebookGoneError if the parent process has ended; a fork of it may hold its socket open."""
    if os.getppid() != parent:
        raise NotebookGoneError


def _run(job: Job, connection: Connection, parent: int) -> list[Ending]:
    """Run ``job`` on its ranks; whatever happens, leave neither process nor file."""
    living: list[HostedRank] = []
    try:
        for number in range(job.world_size):
            living.append(_fork(job, number, living, connection))
        in_time = _supervise(living, job.timeout_s, connection, parent)
        for each in living:
            each.drain()
        return [each.ending(in_time) for each in living]
    finally:
        for each in living:
            each.end()
        shutil.rmtree(job.folder, ignore_errors=True)


def _fork(job: Job, number: int, siblings: list[HostedRank], connection: Connection) -> HostedRank:
    report, report_end = os.pipe()
    output, output_end = os.pipe()
    host = os.getpid()
    pid = os.fork()
    if pid == 0:
        for descriptor in (report, output, *(d for each in siblings for d in (each.report, each.output))):
            os.close(descriptor)
        connection.close()
        ranks.be_rank(job, number, host, report_end, output_end)
    os.close(report_end)
    os.close(output_end)
    for descriptor in (report, output):
        os.set_blocking(descriptor, False)
    return HostedRank(pid, report, output)


def _supervise(living: list[HostedRank], timeout_s: float, connection: Connection, parent: int) -> bool:
    """Read from the ranks until all have reported or one has failed; return False at the time limit."""
    deadline = time.monotonic() + timeout_s
    failed_at: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        for each in living:
            selector.register(each.report, selectors.EVENT_READ, each.received.extend)
            selector.register(each.output, selectors.EVENT_READ, each.printed.add)
        while (now := time.monotonic()) < deadline:
            _read_pipes(selector, _POLL_S)
            _check(parent)
            for each in living:
                each.reap()
            if not any(each.running for each in living):
                return True
            if failed_at is None and any(each.failed for each in living):
                failed_at = now
            if failed_at is not None and now > failed_at + _OTHERS_MAY_END_S:
                return True
        for each in living:  # those that have not reported say where they are
            if each.running:
                os.kill(each.pid, ranks.ASK_WHERE)
        until = time.monotonic() + _OTHERS_MAY_END_S
        while time.monotonic() < until:
            _read_pipes(selector, _POLL_S)
    return False


def _read_pipes(selector: selectors.BaseSelector, seconds: float) -> None:
    """Read one piece from each pipe that has some. Raises NotebookGoneError at the connection's end."""
    for key, _ in selector.select(seconds):
        if key.data is None:  # nothing is to be said while ranks run: this is the end of the connection
            raise NotebookGoneError
        chunk = read_piece(key.fd)
        if chunk:
            key.data(chunk)
        elif chunk is not None:
            selector.unregister(key.fileobj)


# --- the output of a rank: all of a little, the beginning and the end of much

_KEPT_AT_EACH_END = 8_000  # bytes


class BoundedOutput:
    """Bytes that a rank printed: as many as fit, from both ends, however many there are."""

    def __init__(self, kept_at_each_end: int = _KEPT_AT_EACH_END) -> None:
        self._most = kept_at_each_end
        self._head = bytearray()
        self._tail = bytearray()
        self._left_out = 0

    def add(self, chunk: bytes) -> None:
        """Append bytes: the first ``kept_at_each_end`` are kept, and of all others the last as many."""
        room = self._most - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = max(0, len(self._tail) - self._most)
        del self._tail[:excess]
        self._left_out += excess

    def text(self) -> str:
        """Return what was kept; a line says how much is missing where something is."""
        head, tail = (part.decode("utf-8", "replace") for part in (self._head, self._tail))
        gap = f"\n… {self._left_out:,} bytes left out …\n" if self._left_out else ""
        return head + gap + tail


# --- one rank, as its host sees it: what it sent, what it printed, how it ended

_HEADER = struct.Struct("!Q")
_PIPE_PIECES = 16  # of 64 KiB: what a pipe can hold, at most


@dataclass
class HostedRank:
    """A rank and the host's ends of its two pipes."""

    pid: int
    report: int
    output: int
    received: bytearray = field(default_factory=bytearray)
    printed: BoundedOutput = field(default_factory=BoundedOutput)
    status: int | None = None

    @property
    def reported(self) -> bool:
        """Whether all of its report has come."""
        if len(self.received) < _HEADER.size:
            return False
        (length,) = _HEADER.unpack_from(self.received)
        return len(self.received) >= _HEADER.size + length

    @property
    def running(self) -> bool:
        """Whether there is something to wait for."""
        return not self.reported and self.status is None

    @property
    def failed(self) -> bool:
        """Whether it raised, or ended without a report."""
        return self._raised if self.reported else self.status is not None

    @property
    def _raised(self) -> bool:
        return self.received.startswith(RAISED, _HEADER.size)

    def reap(self) -> None:
        """Record the exit status if the process has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)

    def drain(self) -> None:
        """Read what the pipes hold, at most their capacity: a rank may still be printing."""
        for descriptor, add in ((self.report, self.received.extend), (self.output, self.printed.add)):
            for _ in range(_PIPE_PIECES):
                chunk = read_piece(descriptor)
                if not chunk:
                    break
                add(chunk)

    def ending(self, in_time: bool) -> Ending:
        """Return how the rank ended; ``in_time`` is False where the limit passed before it had reported."""
        printed = self.printed.text()
        if self.reported:
            kind: Kind = "raised" if self._raised else "returned"
            return Ending(kind, bytes(self.received[_HEADER.size + len(RAISED) :]), printed)
        if self.status is not None:
            return Ending("died", bytes(self.received), printed, self.status)
        return Ending("stopped" if in_time else "running", bytes(self.received), printed)

    def end(self) -> None:
        """Kill the rank and its child processes, wait for it, and close its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)  # it may not have made a group of its own yet
            os.waitpid(self.pid, 0)
        os.close(self.report)
        os.close(self.output)


def read_piece(descriptor: int) -> bytes | None:
    """Return what is there; nothing at the end, None if nothing has come yet."""
    try:
        return os.read(descriptor, 1 << 16)
    except BlockingIOError:
        return None
    except OSError:
        return b""
