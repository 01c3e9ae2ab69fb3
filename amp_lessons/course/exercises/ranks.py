"""Let the learner's code run on two ranks: a worker each, which reach each other over gloo."""

from __future__ import annotations

from typing import Any

from amp_lessons._base.worker.client import Ended, Limits, Raised, Worker, call_together
from amp_lessons.audit.findings import Finding, failed
from amp_lessons.course.exercises import bed, ranks_there

RANKS = 2
_THERE = ranks_there.__name__
_MOST_S = 2.0  # of the processor; by the clock more: only by waiting is a deadlock told from slow code


def run(worker: Worker, there: str, *args: Any) -> list[dict[str, Any]]:
    """Return what ``there``, "module:function", returns on each rank, as ``told``, beside its ``rank``.

    It is given the learner's function and ``args``. Ranks come in their order; one that has left the others,
    which are lost without it, comes before them. Rejects ranks that end, or wait for each other for ever.
    """
    limits = Limits(min(_MOST_S, worker.limits.cpu_s), worker.limits.memory)
    meet_at, ends = "", dict[int, Any]()
    with worker.another(limits) as second:
        workers = worker, second
        for rank, each in enumerate(workers):
            meet_at = each.call("amp_lessons.parallel.rank:enter", rank, RANKS, meet_at)
        for each, answer in call_together(workers, f"{_THERE}:be", bed.Handle(0), there, list(args)):
            ends[workers.index(each)] = answer
    worker.printed, worker.characters = worker.printed + second.printed, worker.characters + second.characters
    if ended := [each for each in ends.values() if isinstance(each, Ended)]:
        raise bed.Rejected(_ended(min(ended, key=lambda each: each.how), limits.cpu_s))
    if raised := [each for each in ends.values() if isinstance(each, Raised)]:
        raise raised[0]
    return sorted(({**told, "rank": rank} for rank, told in sorted(ends.items())), key=_when_left)


def _when_left(told: dict[str, Any]) -> float:
    return float("inf") if told["left"] is None else float(told["left"])


def _ended(ended: Ended, limit_s: float) -> Finding:
    if ended.how != "time":
        hint = "return a value, or raise an exception; a rank that ends leaves the others waiting"
        return failed("rank_ended", f"a rank did not come to its end: {ended.detail}", hint)
    where = bed.line_of(ended.where)
    place = f"; it was at {where}" if where else ""
    return failed(
        "rank_time_limit",
        f"after {limit_s:.2g} seconds your code was still running on a rank, or waiting for the other{place}",
        "every rank must call the same collectives in the same order: leave none out because of what one "
        "rank alone sees, an overflow or a batch of its own. Or is there a loop that never ends?",
    )
