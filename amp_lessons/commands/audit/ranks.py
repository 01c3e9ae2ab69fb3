"""Whether this process is one of several ranks, and which of them can meet."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Rank:
    """One of ``world_size`` ranks that ``torchrun``, or whatever sets its variables, has started.

    Its ``peers``, itself among them, meet in ``folder``: those of its machine, or all where they share one.
    """

    number: int
    world_size: int
    peers: tuple[int, ...]
    folder: Path

    @property
    def writes_files(self) -> bool:
        """Whether the report of this rank's meeting is that of the files that were asked for."""
        return self.peers[0] == 0

    @property
    def others(self) -> tuple[int, ...]:
        """The ranks of other machines, of which nothing is heard."""
        return tuple(sorted(set(range(self.world_size)) - set(self.peers)))


def of_environment(variables: Mapping[str, str], shared: Path | None = None) -> Rank | None:
    """Read what ``torchrun`` tells its processes; None in any other, and where there is one rank only.

    ``shared`` is a folder that the ranks of all machines see.
    """
    try:
        number, world_size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        local_rank = int(variables.get("LOCAL_RANK", number))
        here = int(variables.get("LOCAL_WORLD_SIZE", world_size))
    except (KeyError, ValueError):
        return None
    if world_size < 2:
        return None
    if shared is not None:
        return Rank(number, world_size, tuple(range(world_size)), shared / _meeting(variables))
    first = number - local_rank
    folder = Path(tempfile.gettempdir()) / _meeting(variables, _launcher(variables))
    return Rank(number, world_size, tuple(range(first, first + here)), folder)


def _meeting(variables: Mapping[str, str], launcher: str = "") -> str:
    """Name what the ranks of one launch, and of one attempt of it, have in common, and others have not."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
    said = "\n".join([*(variables.get(name, "") for name in names), launcher])
    return f"amp-lessons-audit-of-ranks-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


def _launcher(variables: Mapping[str, str]) -> str:
    """Name the launch on this machine: ``torchrun`` gives each of its attempts a folder for errors."""
    file = variables.get("TORCHELASTIC_ERROR_FILE", "")
    return str(Path(file).parents[1]) if file and file != os.devnull else str(os.getppid())
