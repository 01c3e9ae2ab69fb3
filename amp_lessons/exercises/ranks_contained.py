"""Run a part of a check on real processes: what the learner's code does there ends in an answer here.

Ranks are ``parallel.run``'s: whatever they do, they are ended with the check. In each of them the learner's
code is contained as anywhere else. A rank whose attempt is rejected leaves word in a folder and ends the
others, which may be waiting for it.
"""

from __future__ import annotations

import contextlib
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist

from amp_lessons import parallel
from amp_lessons.audit.findings import Finding, failed, todo
from amp_lessons.autocast.cuda_on_cpu.rules import cuda_rules, cuda_rules_apply
from amp_lessons.exercises.attempt import Rejected
from amp_lessons.exercises.containment import sandbox
from amp_lessons.exercises.containment.time_limit import PATIENCE, TimeUp
from amp_lessons.exercises.report.results import SideBySide

RANKS = 2
_START_S = 120.0
_MOST_S = 4.0  # by the clock ``PATIENCE`` times as long: only by waiting is a deadlock told from slow code
_OF_ITS_OWN = 0.9  # so that a rank can say where its code was, before it is ended from outside


def prepare() -> None:
    """Start what starts ranks, where it does not run yet: that takes seconds, none of them the learner's."""
    with contextlib.suppress(RuntimeError, NotImplementedError):  # said again, and told, by the run itself
        parallel.run(int, 1, timeout_s=_START_S)


def run(task: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what ``task(*args)`` returns on each rank; it may reject the attempt, as a check may.

    Raises Rejected for that, and for ranks that wait for each other for ever, end, or cannot be started.
    """
    limit_s = max(1.0, min(sandbox.time_left_s(), _MOST_S))
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = parallel.run(
                _be_rank,
                RANKS,
                task,
                args,
                limit_s * _OF_ITS_OWN,
                folder,
                cuda_rules_apply(),
                timeout_s=PATIENCE * limit_s,
            )
        except parallel.RankError as error:
            raise Rejected(*(_left_word(Path(folder)) or (_ended(error, limit_s),))) from error
        except TypeError as error:
            raise Rejected(_cannot_travel(error)) from error
        except (NotImplementedError, RuntimeError) as error:
            raise Rejected(
                todo(f"this exercise runs on two processes, which cannot start: {error}")
            ) from error
    for _, printed in ended:
        print(printed, end="")
    return [value for value, _ in ended]


def _be_rank(
    task: Callable[..., Any], args: tuple[Any, ...], limit_s: float, folder: str, by_cuda_rules: bool
) -> tuple[Any, str]:
    said: tuple[Finding | SideBySide, ...] = ()
    rules = cuda_rules() if by_cuda_rules else contextlib.nullcontext()
    with rules, sandbox.contained(limit_s) as session:
        try:
            value = task(*args)
        except Rejected as rejected:
            said = rejected.said
        except TimeUp:
            said = (_too_long(limit_s, session.stopped_at),)
    if said:
        Path(folder, str(dist.get_rank())).write_bytes(pickle.dumps(said))
        raise RuntimeError("the attempt was rejected")
    return value, session.output.text()


def _left_word(folder: Path) -> tuple[Finding | SideBySide, ...]:
    """Return what the lowest rank said that had something to say."""
    for path in sorted(folder.iterdir()):
        return tuple(pickle.loads(path.read_bytes()))
    return ()


def _too_long(limit_s: float, where: str = "") -> Finding:
    place = f"; it was at {where}" if where else ""
    return failed(
        "rank_time_limit",
        f"after {limit_s:.2g} seconds your code was still running on a rank, or waiting for the other{place}",
        "every rank must call the same collectives in the same order: leave none out because of what one "
        "rank alone sees, an overflow or a batch of its own. Or is there a loop that never ends?",
    )


def _ended(error: parallel.RankError, limit_s: float) -> Finding:
    if isinstance(error, TimeoutError):
        return _too_long(limit_s)
    first_line = error.message.partition("\n")[0]
    return failed(
        "rank_ended",
        f"a rank did not come to its end: {first_line}",
        "return a value, or raise an exception; a rank that ends leaves the others waiting",
    )


def _cannot_travel(error: TypeError) -> Finding:
    return failed(
        "not_for_other_processes",
        f"your code is copied to two other processes, and cannot be: {str(error).partition(chr(10))[0]}",
        "use only the arguments, and what you import or make inside",
    )
