"""``amp-lessons audit`` on several ranks: each runs the script, one reports what all of them saw.

Ranks meet in a folder and talk by its files, never by the script's own process group. Where one rank's script
fails, the others' are ended, as ``torchrun`` would, but not before they have had time to fail by themselves;
so the ranks return one exit status, after the report has been written.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from amp_lessons._base import files
from amp_lessons.audit.report.report import Report
from amp_lessons.audit.report.steps import ranks_in_words
from amp_lessons.audit.report.together import joined
from amp_lessons.cli.audit import parent
from amp_lessons.cli.audit.parent import Options


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
        """The ranks of other machines, of which nothing is known here."""
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
    # torchrun gives each of its attempts on this machine a folder for errors
    file = variables.get("TORCHELASTIC_ERROR_FILE", "")
    launch = str(Path(file).parents[1]) if file and file != os.devnull else str(os.getppid())
    first, folder = number - local_rank, Path(tempfile.gettempdir()) / _meeting(variables, launch)
    return Rank(number, world_size, tuple(range(first, first + here)), folder)


def _meeting(variables: Mapping[str, str], launch: str = "") -> str:
    """Name what the ranks of one launch, and of one attempt of it, have in common, and others have not."""
    names = ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
    said = "\n".join([*(variables.get(name, "") for name in names), launch])
    return f"amp-lessons-audit-of-ranks-{hashlib.sha256(said.encode()).hexdigest()[:16]}"


class Meeting:
    """The folder in which the ranks' parents meet: files that are only ever whole.

    Of each rank: what its child has seen so far, that it has begun, with which status its child has ended,
    and that it needs nothing any more. Of the one that writes the report: the exit status that all return.
    """

    def __init__(self, rank: Rank) -> None:
        """Record that this rank has begun. Raises OSError where the folder is another's or cannot be made."""
        self.rank, self._folder = rank, rank.folder
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if hasattr(os, "getuid") and self._folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{self._folder} belongs to somebody else")
        # a launch of the same name, which was killed, may have left something of this rank
        left = [self._path(rank.number, what) for what in ("ended", "left", "json")]
        for path in [*left, *([self._folder / "verdict"] if rank.number == rank.peers[0] else [])]:
            path.unlink(missing_ok=True)
        self._record("began")

    def kept_by(self, rank: int) -> Path:
        """Where a rank's child keeps what it has seen."""
        return self._folder / f"{rank}.json"

    def ended(self, status: int) -> None:
        """Record the exit status of this rank's child."""
        self._record("ended", f"{status}")

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
        """Record the exit status that all return."""
        files.replace(self._folder / "verdict", f"{status}")

    def verdict(self) -> int | None:
        """Return the exit status that all return, None before it is decided."""
        path = self._folder / "verdict"
        return int(path.read_text("utf-8")) if path.exists() else None

    def leave(self, last: bool, within_s: float = 5.0) -> None:
        """Record that this rank is done; the ``last`` one waits for the others, then removes the folder."""
        self._record("left")
        until = time.monotonic() + within_s
        if last:
            while time.monotonic() < until and any(map(self._is_here, self.rank.peers)):
                time.sleep(0.02)
            shutil.rmtree(self._folder, ignore_errors=True)

    def _is_here(self, rank: int) -> bool:
        return self._path(rank, "began").exists() and not self._path(rank, "left").exists()

    def _record(self, what: str, text: str = "") -> None:
        with contextlib.suppress(FileNotFoundError):  # the others have given this one up, and cleared away
            files.replace(self._path(self.rank.number, what), text)

    def _path(self, rank: int, what: str) -> Path:
        return self._folder / f"{rank}.{what}"


_POLL_S = 0.1
_ABSENT_S = 60.0  # after this rank's own end: who has not come by then never will
_HURRIED_S = 10.0  # after a SIGTERM; torchrun kills after 30
_SAYS_SO_AFTER_S = 10.0
_SHARED = "name a folder that all of them see with --shared"

Publish = Callable[[Report, int], int]  # the report and the script's status; returns the command's


def run(meeting: Meeting, options: Options, arguments: list[str], of: str, publish: Publish) -> int:
    """Run this rank's script; return the exit status of all, once one of them has published."""
    with parent.outliving_sigterm() as hurried:
        status = parent.run_child(options, arguments, meeting.one_failed)
        meeting.ended(status)
        leads = meeting.rank.number == meeting.rank.peers[0]

        def may_go_on() -> bool:
            all_ended = set(meeting.statuses()) == set(meeting.rank.peers)
            return all_ended if leads else meeting.verdict() is not None

        came = _wait(meeting, may_go_on, hurried, _HURRIED_S if leads else 1.5 * _HURRIED_S)
        if not came and not leads:  # the one that should have published is gone
            leads = meeting.rank.number == min(meeting.statuses())
        if leads:
            meeting.decide(publish(*_joined(meeting, of)))
        decided = meeting.verdict()
        meeting.leave(last=leads)
    return parent.NOT_RUN if decided is None else decided


def _wait(meeting: Meeting, holds: Callable[[], bool], hurried: threading.Event, hurried_s: float) -> bool:
    """Wait until something holds; False where ranks that it takes will not come, or there is no more time."""
    start, hurried_at, said = time.monotonic(), None, False
    while not holds():
        now = time.monotonic()
        hurried_at = now if hurried_at is None and hurried.is_set() else hurried_at
        if hurried_at is not None and now - hurried_at > hurried_s:
            return False
        if now - start > _ABSENT_S and meeting.absent():
            return False
        if not said and now - start > _SAYS_SO_AFTER_S and meeting.rank.number == meeting.rank.peers[0]:
            said = True
            missing = ranks_in_words(set(meeting.rank.peers) - set(meeting.statuses()))
            print(f"amp-lessons audit: waiting for {missing} to end", file=sys.stderr)
        time.sleep(_POLL_S)
    return True


def _joined(meeting: Meeting, of: str) -> tuple[Report, int]:
    """Return the report of all ranks that were there, and the status of the one that failed first, else 0."""
    statuses, absent = meeting.statuses(), meeting.absent()
    came = [rank for rank in meeting.rank.peers if rank not in absent]
    reports = {rank: parent.report_of(meeting.kept_by(rank), of, statuses.get(rank) or 0) for rank in came}
    for rank in came:
        if rank not in statuses and not reports[rank].ended:
            ended = "it was killed without a word; what is said of it was seen before"
            reports[rank] = replace(reports[rank], ended=ended)
    unseen = [f"{ranks_in_words(absent)}: nothing came; {_SHARED}"] if absent else []
    if meeting.rank.others:
        unseen.append(f"{ranks_in_words(meeting.rank.others)}, on other machines; {_SHARED}")
    report = parent.and_not_seen(joined(reports, ended_first=statuses), *unseen)
    return report, next((status for status in statuses.values() if status), 0)
