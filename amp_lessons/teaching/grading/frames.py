"""Messages between two processes: JSON behind its length, never anything that could run when it is read."""

from __future__ import annotations

import json
import os
import select
import time
from typing import Any

MOST_BYTES = 64 * 2**20
_LENGTH = 8


class BrokenFrameError(Exception):
    """What came is no message: the other end has gone, or has written something else."""


def write(descriptor: int, message: Any) -> None:
    """Write ``message``, of what JSON can hold. Raises OSError where nobody reads any more."""
    body = json.dumps(message).encode()
    rest = memoryview(len(body).to_bytes(_LENGTH, "big") + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read(descriptor: int, most_bytes: int = MOST_BYTES, limit_s: float | None = None) -> Any:
    """Return the next message. Raises BrokenFrameError for a longer one, and for what is none.

    Raises TimeoutError where it is not there, whole, within ``limit_s`` seconds.
    """
    until = None if limit_s is None else time.monotonic() + limit_s
    length = int.from_bytes(_exactly(descriptor, _LENGTH, until), "big")
    if length > most_bytes:
        raise BrokenFrameError(f"a message of {length:,} bytes; {most_bytes:,} are allowed")
    try:
        return json.loads(_exactly(descriptor, length, until))
    except (ValueError, RecursionError) as error:
        raise BrokenFrameError("what came is not JSON") from error


def _exactly(descriptor: int, count: int, until: float | None) -> bytes:
    parts = []
    while count:
        left_s = None if until is None else max(0.0, until - time.monotonic())
        if not select.select([descriptor], [], [], left_s)[0]:
            raise TimeoutError
        part = os.read(descriptor, min(count, 2**20))
        if not part:
            raise BrokenFrameError("the other end has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
