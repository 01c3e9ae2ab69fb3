"""``amp-lessons audit`` on several ranks: each runs the script, one tells what all of them saw.

Ranks talk by files (``meeting``), never by the script's own process group. Where one rank's script fails,
the others' are ended, as ``torchrun`` would, but not before they have had time to fail by themselves; so the
ranks return one exit status, after the report has been written.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from amp_lessons.audit.report.document import Document
from amp_lessons.audit.report.steps import ranks_in_words
from amp_lessons.audit.report.together import joined
from amp_lessons.commands.audit import outcome, over
from amp_lessons.commands.audit.meeting import Meeting
from amp_lessons.commands.audit.options import Options

_POLL_S = 0.1
_ABSENT_S = 60.0  # after this rank's own end: who has not come by then never will
_HURRIED_S = 10.0  # after a SIGTERM; torchrun kills after 30
_SAYS_SO_AFTER_S = 10.0
_SHARED = "name a folder that all of them see with --shared"

Tell = Callable[[Document, int], int]


def run(meeting: Meeting, options: Options, arguments: list[str], of: str, tell: Tell) -> int:
    """Run this rank's script; return the exit status of all, for which one of them has told the report."""
    with over.outliving_sigterm() as hurried:
        status = over.run_child(options, arguments, meeting.one_failed)
        meeting.ended(status)
        leads = meeting.rank.number == meeting.rank.peers[0]
        waits_for = (
            (lambda: set(meeting.statuses()) == set(meeting.rank.peers)) if leads else _decided(meeting)
        )
        if not _wait(meeting, waits_for, hurried, _HURRIED_S if leads else 1.5 * _HURRIED_S) and not leads:
            leads = meeting.rank.number == min(meeting.statuses())  # the one that should have told is gone
        if leads:
            meeting.decide(tell(*_joined(meeting, of)))
        decided = meeting.verdict()
        meeting.leave(last=leads)
    return outcome.NOT_RUN if decided is None else decided


def _decided(meeting: Meeting) -> Callable[[], bool]:
    return lambda: meeting.verdict() is not None


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


def _joined(meeting: Meeting, of: str) -> tuple[Document, int]:
    """Return the report of all ranks that were there, and the status of the one that failed first, else 0."""
    statuses, absent = meeting.statuses(), meeting.absent()
    came = [rank for rank in meeting.rank.peers if rank not in absent]
    reports = {rank: _of_rank(meeting, rank, statuses.get(rank), of) for rank in came}
    document = joined(reports, ended_first=statuses)
    if absent:
        document["not_seen"].append(f"{ranks_in_words(absent)}: nothing came; {_SHARED}")
    if meeting.rank.others:
        elsewhere = ranks_in_words(meeting.rank.others)
        document["not_seen"].append(f"{elsewhere}, on other machines; {_SHARED}")
    return document, next((status for status in statuses.values() if status), 0)


def _of_rank(meeting: Meeting, rank: int, status: int | None, of: str) -> Document:
    document = outcome.report_of(meeting.kept_by(rank), of, status or 0)
    if status is None and not document["ended"]:
        document["ended"] = "it was killed without a word; what is told of it was seen before"
    return document
