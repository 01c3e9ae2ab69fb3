"""One rank, as its host sees it: what it sent, what it printed, how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
from dataclasses import dataclass, field

from amp_lessons.parallel.bounded import BoundedOutput
from amp_lessons.parallel.job import Ending, Kind
from amp_lessons.parallel.rank import RAISED

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
        """Notice its end."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)

    def drain(self) -> None:
        """Take what lies in the pipes, at most what fits into them: a rank may still be printing."""
        for descriptor, add in ((self.report, self.received.extend), (self.output, self.printed.add)):
            for _ in range(_PIPE_PIECES):
                chunk = read_piece(descriptor)
                if not chunk:
                    break
                add(chunk)

    def ending(self, in_time: bool) -> Ending:
        """Say how it ended; ``in_time`` is whether it was not for the time that it did not report."""
        printed = self.printed.text()
        if self.reported:
            kind: Kind = "raised" if self._raised else "returned"
            return Ending(kind, bytes(self.received[_HEADER.size + len(RAISED) :]), printed)
        if self.status is not None:
            return Ending("died", bytes(self.received), printed, self.status)
        return Ending("stopped" if in_time else "running", bytes(self.received), printed)

    def end(self) -> None:
        """End a rank and what it started, and forget it."""
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
