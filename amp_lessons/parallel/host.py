"""The process that hosts the ranks: it imports PyTorch once, forks the ranks, watches and ends them.

It has one thread and runs no operation of PyTorch's, so a fork of it is safe, which a fork of a notebook's
kernel is not; and a fork takes a hundredth of the time in which a new Python imports PyTorch. It ends when
the notebook does, by whatever means, or when nobody has asked anything of it for a while.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import shutil
import time
from multiprocessing.connection import Connection

from amp_lessons.parallel import rank as ranks
from amp_lessons.parallel.hosted import HostedRank, read_piece
from amp_lessons.parallel.job import ACCEPTED, READY, Ending, Job

_POLL_S = 0.05
_OTHERS_MAY_END_S = 0.3  # after the first failure: what comes in this time is told too


class NotebookGoneError(Exception):
    """Nobody waits for the results any more."""


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
        while _asked(connection, parent, idle_s):
            _serve(connection, parent)


def _serve(connection: Connection, parent: int) -> None:
    """Do one job, of which nothing is kept."""
    job = pickle.loads(connection.recv_bytes())
    connection.send_bytes(ACCEPTED)
    connection.send_bytes(pickle.dumps(_run(job, connection, parent)))


def _preload() -> None:
    """Import what training on several ranks needs: each rank would take seconds for it, on its own."""
    import torch
    import torch.distributed.fsdp
    import torch.distributed.tensor.parallel

    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # the first one imports torch._dynamo


def _asked(connection: Connection, parent: int, idle_s: float) -> bool:
    """Wait for the next job; False when the time without one is over."""
    give_up = time.monotonic() + idle_s
    while time.monotonic() < give_up:
        if connection.poll(1.0):
            return True
        _check(parent)
    return False


def _check(parent: int) -> None:
    """Notice the end of the notebook where its socket does not: a fork of it may hold that open."""
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
    """Hear the ranks until all have reported, or one has failed, or the time is over: then return False."""
    deadline = time.monotonic() + timeout_s
    failed_at: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        for each in living:
            selector.register(each.report, selectors.EVENT_READ, each.received.extend)
            selector.register(each.output, selectors.EVENT_READ, each.printed.add)
        while (now := time.monotonic()) < deadline:
            _hear(selector, _POLL_S)
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
        _hear_for(selector, _OTHERS_MAY_END_S)
    return False


def _hear_for(selector: selectors.BaseSelector, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _hear(selector, _POLL_S)


def _hear(selector: selectors.BaseSelector, seconds: float) -> None:
    """Take what has come, a piece from everyone. Raises NotebookGoneError when the notebook says anything."""
    for key, _ in selector.select(seconds):
        if key.data is None:  # nothing is to be said while ranks run: this is the end of the connection
            raise NotebookGoneError
        chunk = read_piece(key.fd)
        if chunk:
            key.data(chunk)
        elif chunk is not None:
            selector.unregister(key.fileobj)
