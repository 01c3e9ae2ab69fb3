"""A program that runs beside this process, and never longer: a server, a hub, a part of a recording."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_POLL_S = 0.1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Program:
    """A program in a process group of its own, whose output is added to ``log``; use it in ``with``.

    Leaving ends it and what it has started. On Linux it is also asked to end when this process is gone,
    however that came about.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        end_s: float = 20.0,
    ) -> None:
        """Start it; ``end_s`` is how long it may take to end when it is asked to."""
        self._log, self._end_s = log, end_s
        with log.open("ab") as words:
            self._said_before = words.tell()
            self._process = subprocess.Popen(
                list(map(str, command)),
                cwd=cwd,
                env=None if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=words,
                stderr=subprocess.STDOUT,
                preexec_fn=None if _LIBC is None else _end_with_the_parent,
                start_new_session=True,  # so that it can be ended together with all that it has started
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exception: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def said(self) -> str:
        """Return what it has printed."""
        return self._log.read_bytes()[self._said_before :].decode(errors="replace")

    def wait(self, limit_s: float) -> int | None:
        """Return its exit status, minus the number of the signal that ended it; None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(max(0.0, limit_s))
        return None

    def wait_until(self, ready: Callable[[], bool], limit_s: float) -> None:
        """Poll until it is ready. Raises RuntimeError with its last words where it ends or takes longer."""
        deadline = time.monotonic() + limit_s
        while self.wait(_POLL_S) is None and time.monotonic() < deadline:
            if ready():
                return
        raise RuntimeError(f"{self._process.args[0]!r} did not get ready:\n{self.said()[-3000:]}")

    def end(self) -> None:
        """Terminate it, and kill it if it does not end; whatever is left of its group ends with it."""
        self._process.terminate()
        self.wait(self._end_s)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _end_with_the_parent() -> None:
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
