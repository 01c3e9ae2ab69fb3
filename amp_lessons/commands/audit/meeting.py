"""A folder in which the ranks' parents meet: files that are only ever whole, and nothing of the script's own.

Of each rank: what its child has seen so far, that it has begun, with which status its child has ended, and
that it needs nothing any more. Of the one that writes the report: the exit status that all return.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from amp_lessons import files
from amp_lessons.commands.audit.ranks import Rank


class Meeting:
    """What one rank says to its peers, and hears of them."""

    def __init__(self, rank: Rank) -> None:
        """Say that this rank has begun. Raises OSError where the folder cannot be made, or is another's."""
        self.rank, self._folder = rank, rank.folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to somebody else")
        self._forget()
        self._say("began")

    def _forget(self) -> None:
        """Remove what a launch of the same name, which was killed, has left of this rank."""
        number = self.rank.number
        verdict = [self._folder / "verdict"] if number == self.rank.peers[0] else []
        for path in (*(self._path(number, what) for what in ("ended", "left", "json")), *verdict):
            path.unlink(missing_ok=True)

    @property
    def kept(self) -> Path:
        """Where this rank's child keeps what it has seen."""
        return self.kept_by(self.rank.number)

    def kept_by(self, rank: int) -> Path:
        """Where a rank's child keeps what it has seen."""
        return self._folder / f"{rank}.json"

    def ended(self, status: int) -> None:
        """Say with which status this rank's child has ended."""
        self._say("ended", f"{status}")

    def statuses(self) -> dict[int, int]:
        """Return the statuses of the children that have ended, in the order in which they did."""
        found = [path for rank in self.rank.peers if (path := self._path(rank, "ended")).exists()]
        in_order = sorted(found, key=lambda path: path.stat().st_mtime_ns)
        return {int(path.name.partition(".")[0]): int(path.read_text("utf-8")) for path in in_order}

    def one_failed(self) -> bool:
        """Whether a peer's child has ended other than well."""
        return any(self.statuses().values())

    def absent(self) -> list[int]:
        """Return the peers that have not come."""
        return [rank for rank in self.rank.peers if not self._path(rank, "began").exists()]

    def decide(self, status: int) -> None:
        """Say which exit status all return."""
        files.replace(self._folder / "verdict", f"{status}")

    def verdict(self) -> int | None:
        """Return the exit status that all return, None before it is decided."""
        path = self._folder / "verdict"
        return int(path.read_text("utf-8")) if path.exists() else None

    def leave(self, last: bool, within_s: float = 5.0) -> None:
        """Need nothing any more; the ``last`` one waits until nobody does, and clears the folder away."""
        self._say("left")
        until = time.monotonic() + within_s
        while last and time.monotonic() < until and not self._all_left():
            time.sleep(0.02)
        if last:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _all_left(self) -> bool:
        return all(self._path(rank, "left").exists() for rank in self.rank.peers if rank not in self.absent())

    def _say(self, what: str, text: str = "") -> None:
        with contextlib.suppress(FileNotFoundError):  # the others have given this one up, and cleared away
            files.replace(self._path(self.rank.number, what), text)

    def _path(self, rank: int, what: str) -> Path:
        return self._folder / f"{rank}.{what}"
