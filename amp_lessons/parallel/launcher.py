"""The notebook's side: starting the process that hosts the ranks, asking it, ending it.

One host serves one process, and is kept for the next run; it ends by itself when it is not needed.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection

from amp_lessons.parallel.job import ACCEPTED, READY, Ending, Job

_START_S = 120.0  # a cold disk reads PyTorch for a while
_ACCEPT_S = 10.0
_END_S = 3.0
_BEYOND_S = 10.0  # after a job's own limit, for ending its ranks and sending what they said
# What makes a process safe to fork: one thread alone; GPUs counted by NVML, not by CUDA, which no fork of it
# could use then; and no check of macOS's, which ends a fork for frameworks that were loaded and never used.
_SAFE_TO_FORK = {
    **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")},
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",
}
_IDLE_S = 60.0  # so long it waits for the next job: a reader's pause, not a reader's lunch
# With the garbage collector, which the host turns on again, imports take a third longer.
_CODE = "import gc, sys; gc.disable(); sys.path[:] = {!r}; from amp_lessons.parallel.host import main; "
_CODE += "main({}, {})"


class HostError(RuntimeError):
    """The process that hosts the ranks could not be started, or was ended by somebody else."""


class Host:
    """The process that hosts the ranks, and this process's end of the connection to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = _start(theirs)
        try:
            self._greet()
        except BaseException:
            self.end()
            raise
        # whenever it ends, the system is to forget it at once
        threading.Thread(target=self._process.wait, daemon=True).start()

    def _greet(self) -> None:
        """Wait until the host is ready. Raises HostError with what it printed if it ends before."""
        assert self._process.stderr is not None
        with self._process.stderr as stderr:
            if self._receives(_START_S) != READY:
                self.end()
                said = stderr.read(4000).decode("utf-8", "replace").strip()
                raise HostError(f"the process that hosts the ranks could not start:\n{said}")

    def _receives(self, seconds: float) -> bytes | None:
        """Return the next message, None where none comes."""
        try:
            return self._connection.recv_bytes() if self._connection.poll(seconds) else None
        except (EOFError, OSError):
            return None

    def takes(self, job: Job) -> bool:
        """Send a job to the host; return False if the host has ended."""
        try:
            self._connection.send_bytes(pickle.dumps(job))
        except OSError:
            return False
        return self._receives(_ACCEPT_S) == ACCEPTED

    def answer(self, job: Job) -> list[Ending]:
        """Return how the job that it took ended on each rank. Raises HostError if it was ended itself."""
        message = self._receives(job.timeout_s + _BEYOND_S)
        if message is None:
            raise HostError("the process that hosts the ranks ended, or hangs; was it killed for memory?")
        return pickle.loads(message)

    def end(self) -> None:
        """Let it end its ranks and itself; where it does not, end it."""
        self._connection.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its ranks end with it
            self._process.wait()


def _start(theirs: Connection) -> subprocess.Popen[bytes]:
    code = _CODE.format(sys.path, theirs.fileno(), _IDLE_S)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **_SAFE_TO_FORK},
        start_new_session=True,  # the user's interrupt is for the notebook, which then ends the ranks
    )


_host: Host | None = None
_one_at_a_time = threading.Lock()


def carry_out(payload: bytes, world_size: int, timeout_s: float, threads_per_rank: int) -> list[Ending]:
    """Run a pickled function and its arguments on ``world_size`` ranks; return how each of them ended.

    Whatever ends this early, the user's interrupt as well, ends the ranks and their host.
    """
    with _one_at_a_time:
        folder = tempfile.mkdtemp(prefix="amp-lessons-ranks-")
        try:
            job = Job(payload, world_size, timeout_s, threads_per_rank, folder)
            return _host_for(job).answer(job)
        except BaseException:
            _end_host()
            raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _host_for(job: Job) -> Host:
    """Return a host that has taken the job, the one that is there or a new one."""
    global _host
    if _host is not None and _host.owner == os.getpid() and _host.takes(job):
        return _host
    _end_host()
    _host = Host()
    if not _host.takes(job):
        raise HostError("the process that hosts the ranks ended as soon as it had started")
    return _host


def _end_host() -> None:
    """End this process's host. One that was inherited by a fork belongs to somebody else."""
    global _host
    host, _host = _host, None
    if host is not None and host.owner == os.getpid():
        host.end()


def stop() -> None:
    """End the process that waits for the next ``run``; a later ``run`` starts another, in seconds."""
    with _one_at_a_time:
        _end_host()


atexit.register(_end_host)  # not stop: a thread that is in the middle of a run may not be waited for
