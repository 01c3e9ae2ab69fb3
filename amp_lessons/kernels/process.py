"""A kernel that was forked for this process and is no child of it, held as ``Popen`` holds a child."""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from amp_lessons.kernels import request

_UNKNOWN = -9  # how it ended, where the parent ended first
_TOLD_IN_S = 0.5
_POLL_S = 0.05


class RefusedError(Exception):
    """The parent does not fork this kernel; the message says why."""


class ForkedProcess:
    """The part of ``Popen`` that Jupyter uses. The kernel ends when this process does, as a child would."""

    stdin = stdout = stderr = None

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        """Wait until the kernel is there. Raises RefusedError."""
        self._connection, self._heard, self._closed = connection, b"", False
        self.returncode: int | None = None
        connection.setblocking(False)
        deadline = time.monotonic() + timeout_s
        while not self._closed and "pid" not in request.hear(self._heard) and not self._refusal():
            if not self._listen(deadline - time.monotonic()):
                connection.close()
                raise RefusedError(f"nothing was heard of it for {timeout_s:.0f} s")
        if "pid" not in request.hear(self._heard):
            connection.close()
            raise RefusedError(self._refusal() or "the parent has gone")
        self.pid = int(request.hear(self._heard)["pid"])
        self._alive = self._opened()

    def _opened(self) -> int | None:
        """Open what can be asked whether the process lives, whoever gets its number after it."""
        try:
            return os.pidfd_open(self.pid)
        except OSError:
            return None

    def _refusal(self) -> str:
        heard = request.hear(self._heard)
        ended = f"the fork ended at once ({heard['ended']})" if "ended" in heard else ""
        return heard.get("refused", "") or ended

    def _listen(self, timeout_s: float) -> bool:
        """Take in what was sent; False if nothing came in time."""
        if not select.select([self._connection], [], [], max(0.0, timeout_s))[0]:
            return False
        try:
            piece = self._connection.recv(4096)
        except OSError:
            piece = b""
        self._heard += piece
        self._closed = self._closed or not piece
        return True

    def poll(self) -> int | None:
        """Return how the kernel ended, or None while it lives."""
        if self.returncode is None and not self._lives():
            self.returncode = self._told()
            self._connection.close()
            if self._alive is not None:
                os.close(self._alive)
                self._alive = None
        return self.returncode

    def _lives(self) -> bool:
        return self._alive is not None and not select.select([self._alive], [], [], 0)[0]

    def _told(self) -> int:
        """Return what the parent tells of its end, if it is there to tell."""
        deadline = time.monotonic() + _TOLD_IN_S
        while not self._closed and "ended" not in request.hear(self._heard):
            if not self._listen(deadline - time.monotonic()):
                break
        return int(request.hear(self._heard).get("ended", _UNKNOWN))

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the kernel has ended. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"kernel {self.pid} still runs")
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel, and to nobody who got its number later."""
        if self.poll() is None and self._alive is not None:
            signal.pidfd_send_signal(self._alive, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)
