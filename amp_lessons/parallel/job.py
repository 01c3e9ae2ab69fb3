"""The messages between the notebook and the process that hosts the ranks."""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["returned", "raised", "died", "running", "stopped"]

READY = b"ready"
ACCEPTED = b"accepted"


@dataclass(frozen=True)
class Job:
    """A function to be run on ``world_size`` ranks, and the surroundings in which its author wrote it.

    ``payload`` is the pickled function with its arguments; only the ranks read it. ``folder`` is where they
    meet: a file there is their store, so no port is taken that another run could have.
    """

    payload: bytes
    world_size: int
    timeout_s: float
    threads_per_rank: int
    folder: str
    environment: dict[str, str] = field(default_factory=lambda: dict(os.environ))
    working_folder: str = field(default_factory=os.getcwd)
    path: list[str] = field(default_factory=lambda: list(sys.path))
    arguments: list[str] = field(default_factory=lambda: list(sys.argv))
    cells: dict[str, list[str]] = field(default_factory=lambda: _cells())


@dataclass(frozen=True)
class Ending:
    """The end of one rank, as its host saw it.

    ``body`` is what the rank sent: its pickled result where it returned, its traceback where it raised. Of a
    rank that had to be stopped it is where it was. ``status`` is the exit code, negative for a signal.
    """

    kind: Kind
    body: bytes
    printed: str
    status: int = 0


def _cells() -> dict[str, list[str]]:
    """Return the source of what is in no file, a notebook's cells: tracebacks of ranks are to show it."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: list(entry[2]) for name, entry in entries if not os.path.exists(name)}
