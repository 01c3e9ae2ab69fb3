"""The parent that a server starts for its own kernels: it ends when the server does, and is started again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

from amp_lessons.kernels import request
from amp_lessons.kernels.process import RefusedError

_MOST_STARTS = 3  # a parent that cannot live is not started for ever
_BACKLOG = 32


class OwnParent:
    """A process that forks the kernels of this one. There is one, ``OwnParent.instance()``."""

    _instance: OwnParent | None = None

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._starts, self._lock = 0, threading.Lock()
        self._address = b""

    @classmethod
    def instance(cls) -> OwnParent:
        """Return the one of this process, started or not."""
        if cls._instance is None:
            cls._instance = cls()
        return cls._instance

    @property
    def pid(self) -> int | None:
        """The number of its process, while it runs."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def connected(self) -> socket.socket:
        """Return a connection to the parent, which may still be importing. Raises RefusedError or OSError."""
        with self._lock:
            if self.pid is None:
                self._start()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(self._address)
            if request.peer_of(connection).user != os.getuid():
                raise RefusedError("another account answers in place of the process that forks them")
        except BaseException:
            connection.close()
            raise
        return connection

    def _start(self) -> None:
        """Listen where it will, so that nobody has to wait until it does, and start it."""
        if self._starts == _MOST_STARTS:
            raise RefusedError(f"the process that forks them has ended {_MOST_STARTS} times")
        self._starts += 1
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")  # at a name that the system finds, and of which no file is left
            listener.listen(_BACKLOG)
            self._address = listener.getsockname()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "amp_lessons.kernels", "--inherited", str(listener.fileno())],
                stdin=subprocess.PIPE,  # closed when this process ends, however: then the parent ends too
                pass_fds=[listener.fileno()],
                start_new_session=True,
            )

    def end(self) -> None:
        """Let the parent end; kernels that it has forked live on."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
