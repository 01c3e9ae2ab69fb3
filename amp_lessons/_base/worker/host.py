"""The process that forks workers and judges: clean, started when first needed, and again where it ended."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from typing import Any

_START_S, _ANSWER_S = 120.0, 20.0  # on a busy machine importing PyTorch takes long
_IDLE_S = 900.0
_ENDED = "the host process has ended, or does not answer; was it killed for memory?"
SAFE_TO_FORK = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # asking for a GPU must not make one process of forks unusable
    "OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES",  # macOS ends forks for frameworks loaded and never used
}
# What is freed is the system's again, and memory can be measured; operations on large tensors take longer.
ENVIRONMENT = {**SAFE_TO_FORK, "MALLOC_MMAP_THRESHOLD_": "65536"}


class HostEndedError(RuntimeError):
    """The process that hosts workers has ended, or does not answer."""


class Connection:
    """What a host is asked by: its owner's, or a judge's that it has forked."""

    def __init__(self, control: socket.socket) -> None:
        self._control, self._buffer = control, b""
        self._lock = threading.RLock()

    def ask(self, word: str, *request: Any, ends: Sequence[int] = ()) -> Any:
        """Send a request and return the number that answers it, or numbers. Raises HostEndedError."""
        with self._lock:
            try:
                socket.send_fds(self._control, [json.dumps([word, *request]).encode()], list(ends))
            except OSError:
                raise HostEndedError(_ENDED) from None
            return self._line()

    def _line(self) -> Any:
        while b"\n" not in self._buffer:
            try:
                piece = self._control.recv(4096)
            except OSError:
                piece = b""
            if not piece:
                raise HostEndedError(_ENDED)
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)


class Host(Connection):
    """A host of this process that has imported the modules of ``preload``, and lets them warm up.

    It ends with this process, by whatever means, or when nobody has asked it for ``idle_s`` seconds.

    ``command`` starts it otherwise, in a sandbox for one: it is given the number of the descriptor that the
    program's first argument is to be, and the modules' names are those after it (``serving.main``).
    """

    def __init__(
        self,
        preload: tuple[str, ...] = (),
        command: Callable[[int], Sequence[str]] | None = None,
        start_s: float = _START_S,
        idle_s: float = _IDLE_S,
        environment: dict[str, str] = ENVIRONMENT,
    ) -> None:
        control, theirs = socket.socketpair()
        super().__init__(control)
        self._owner, self._start_s = os.getpid(), start_s
        code = (
            f"import gc, sys; gc.disable(); sys.path[:] = {sys.path!r}; "
            f"from amp_lessons._base.worker import serving; serving.main({idle_s})"
        )
        here = [sys.executable, "-c", code, f"{theirs.fileno()}", *preload]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed once it has started
        self.process = subprocess.Popen(
            here if command is None else list(command(theirs.fileno())),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            env={**os.environ, **environment},
            start_new_session=True,  # the user's interrupt is for this process
        )
        threading.Thread(target=self.process.wait, daemon=True).start()  # the system forgets it once it ends
        theirs.close()
        self._ready = False
        self._imported: set[str] = set()

    def ask(self, word: str, *request: Any, ends: Sequence[int] = ()) -> Any:
        """Send a request, once the host has started; return and raise as a connection does."""
        with self._lock:
            if self._control.fileno() < 0:  # it was closed from here
                raise HostEndedError(_ENDED)
            if not self._ready:
                self._wait_until_ready()
            self._control.settimeout(_START_S if word == "import" else _ANSWER_S)
            return super().ask(word, *request, ends=ends)

    def _wait_until_ready(self) -> None:
        self._control.settimeout(self._start_s)
        try:
            self._line()
        except HostEndedError:
            self.process.kill()
            self._said.seek(0)
            said = self._said.read(4000).decode("utf-8", "replace").strip()
            raise HostEndedError(f"the host process could not start:\n{said}") from None
        self._said.close()
        self._ready = True

    def have_imported(self, name: str) -> None:
        """Let it import a module once, and warm up what that has to; raises as ``ask``."""
        if name not in self._imported:
            self.ask("import", name)
            self._imported.add(name)

    @property
    def lives(self) -> bool:
        """Whether this process can still ask it, and will be answered: one that idled has not just ended."""
        with contextlib.suppress(HostEndedError):
            here = self._owner == os.getpid() and self.process.poll() is None
            return here and (not self._ready or self.ask("end") == [])
        return False

    def close(self) -> None:
        """End it; what it has forked ends with it."""
        if self._owner == os.getpid():
            self._said.close()
            self._control.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(2)
            self.process.kill()
            self.process.wait()


_hosts: dict[tuple[str, ...], Host] = {}


def host(preload: tuple[str, ...] = (), **options: Any) -> Host:
    """Return the host of this process that has imported these modules; a new one where none is left.

    It starts in the background, with ``options`` of ``Host``, and whoever asks it first waits for it.
    """
    kept = _hosts.get(preload)
    if kept is None or not kept.lives:
        close(preload)
        _hosts[preload] = kept = Host(preload, **options)
    return kept


def close(*preloads: tuple[str, ...]) -> None:
    """End the hosts of this process that have imported these modules; all, where none are named."""
    for each in preloads or tuple(_hosts):
        if kept := _hosts.pop(each, None):
            kept.close()


atexit.register(close)
