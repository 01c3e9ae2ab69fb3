"""A lock on an open file, which the system lets go when the process ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import IO

_POLL_S = 0.02


class HeldElsewhereError(Exception):
    """Another process holds the lock."""


@contextlib.contextmanager
def held(file: IO[bytes], timeout_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of ``file`` in this block; HeldElsewhereError if nobody lets go within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not _try_lock(file):
        if time.monotonic() >= deadline:
            raise HeldElsewhereError
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        _unlock(file)


if os.name == "nt":
    import msvcrt

    def _try_lock(file: IO[bytes]) -> bool:
        """Take the lock of ``file`` if nobody holds it; say whether this process has it now."""
        file.seek(0)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True

    def _unlock(file: IO[bytes]) -> None:
        """Let go of the lock."""
        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]

else:
    import fcntl

    def _try_lock(file: IO[bytes]) -> bool:
        """Take the lock of ``file`` if nobody holds it; say whether this process has it now."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks, as some network homes are: one process at a time works
            return True
        return True

    def _unlock(file: IO[bytes]) -> None:
        """Let go of the lock."""
        with contextlib.suppress(OSError):  # there again; closing the file lets go as well
            fcntl.flock(file, fcntl.LOCK_UN)
