"""Judge one attempt: in a process of its own, which asks the one that the attempt is in, behind a wall."""

from __future__ import annotations

import secrets
import socket
from dataclasses import astuple, dataclass, field
from typing import Any

from amp_lessons._base.worker import client as worker
from amp_lessons._base.worker.host import HostEndedError
from amp_lessons.audit.findings import failed
from amp_lessons.course.exercises import bed, shelf
from amp_lessons.course.exercises.report.results import Report
from amp_lessons.teaching.grading.wall import EndedError, Limits, Wall, standing, walled_host

_FILE = "<submission>"  # as the worker calls it in which the source is defined
_HINT = "run the notebook from top to bottom in a fresh kernel, and check again"


@dataclass(frozen=True)
class Terms:
    """How to grade: within which time and limits, how many attempts at once, and whether without a wall, too.

    ``limit_s`` is the time of one check in seconds. ``unprotected`` says that learners' code may run where
    nothing stands between it and what this account may read and write.
    """

    limit_s: float = 20.0
    limits: Limits = field(default_factory=Limits)
    jobs: int = 1
    unprotected: bool = False


def judged(exercise_id: str, source: str, terms: Terms) -> Report:
    """Return the report on an attempt, whatever it does."""
    request = exercise_id, standing().program, terms.limit_s, *astuple(terms.limits)
    try:
        said = bed.said_by_judge(f"{__name__}:judge", source.encode("utf-8", "replace"), *request)
    except HostEndedError:
        said = bed.unjudged(failed("checker_failed", "the process that judged it has ended", _HINT))
    return Report.from_judge(exercise_id, shelf.find(exercise_id).title, said)


def judge(
    control: socket.socket, channel: socket.socket, exercise_id: str, wall: str, limit_s: float, *limits: Any
) -> dict[str, Any]:
    """Judge from here an attempt that is in a worker behind the wall, by the exercise's own judge."""
    control.close()  # to the host that has forked this process; the attempt has one of its own
    source = channel.makefile("rb").read().decode("utf-8")
    exercise, allowed = shelf.find(exercise_id), Limits(*limits)
    payload = {"source": source, "names": list(exercise.names), "lines": {_FILE: source}}
    preload = (bed.OPTIMIZERS_NEED,) if exercise.meets_optimizers else ()
    each, seed = worker.Limits(limit_s, allowed.memory_bytes), secrets.randbits(31)
    try:
        with walled_host(Wall(wall), allowed, preload) as hosts:
            return bed.judged(exercise_id, hosts, payload, each, seed, exercise.meets_autocast)
    except EndedError as error:
        message = f"there is no answer from the code that was handed in: {error}"
        return bed.unjudged(failed("process_ended", message, _HINT))
