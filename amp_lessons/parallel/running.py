"""A function on several processes that form a group, from a notebook or a script."""

from __future__ import annotations

import contextlib
import linecache
import math
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from amp_lessons._base.arguments import require_callable, require_number, require_whole
from amp_lessons._base.worker.client import Ended, Limits, Raised, Worker, call_together, end, pickled
from amp_lessons._base.worker.host import SAFE_TO_FORK, HostEndedError, close, host

T = TypeVar("T")
Kind = Literal["returned", "raised", "died", "running", "stopped"]

_THERE = "amp_lessons.parallel.rank"  # imported by the ranks' host, not here
_IDLE_S = 60.0  # so long the host waits for the next run: a reader's pause, not a reader's lunch
_OTHERS_MAY_END_S = 0.3  # after the first failure: what comes in this time is told too
_MOST_RANKS = 64  # each is a process, with connections to all others


class Results(list[T]):
    """One result per rank, in the order of ranks; ``printed`` is what each of them printed."""

    printed: tuple[str, ...] = ()


def run(
    fn: Callable[..., T], world_size: int, *args: Any, timeout_s: float = 60, threads_per_rank: int = 1
) -> Results[T]:
    """Call ``fn(*args)`` on ``world_size`` processes that form a gloo group; return one result per rank.

    ``fn`` may be defined in a cell, be a lambda or a closure: it is copied by value, and so are ``args`` and
    what it refers to; what a rank changes of them, it changes of its copy. Inside, everything is as under
    ``torchrun``: ``torch.distributed`` is initialised, ``dist.get_rank()`` says which rank this is. What a
    rank prints is kept, both ends of it if it is much, in ``.printed`` of the result. Each rank computes with
    ``threads_per_rank`` threads, so that ranks do not wait for each other's.

    The first call starts a process that imports PyTorch, in seconds; it waits a minute for further calls,
    which are quick, and ends with the kernel, however that ends. ``stop`` ends it at once.

    Raises ``RankError`` if a rank raises, dies, or returns what cannot be pickled: it names the rank, and
    shows its traceback. Raises ``RankTimeoutError`` (a ``RankError`` and a ``TimeoutError``) for ranks that
    run longer than ``timeout_s`` seconds from their start; it says where they were. No rank is left running
    in any case, nor after the user's interrupt. Raises ``TypeError`` or ``ValueError`` for other arguments,
    ``RuntimeError`` where no process can be started, and ``NotImplementedError`` on Windows.
    """
    require_callable(fn, "fn", "a function that each rank calls")
    if require_whole(world_size, "world_size") > _MOST_RANKS:
        raise ValueError(f"world_size is at most {_MOST_RANKS} processes, not {world_size}")
    limit = require_number(timeout_s, "timeout_s", above=0)
    if limit > 86_400:
        raise ValueError(f"timeout_s is at most a day, 86400, not {timeout_s}")
    threads = require_whole(threads_per_rank, "threads_per_rank")
    if not hasattr(os, "fork"):
        raise NotImplementedError("parallel.run needs Linux or macOS; on Windows, run the course in WSL")
    endings = _carry_out(_pickle(fn, args), world_size, limit, threads)
    error = failure(endings, limit)
    if error is not None:
        raise error
    printed = tuple(ending.printed for ending in endings)
    results = Results(_unpickle(rank, ending, printed) for rank, ending in enumerate(endings))
    results.printed = printed
    return results


def _unpickle(rank: int, ending: Ending, printed: tuple[str, ...]) -> Any:
    try:
        return pickle.loads(ending.result)
    except Exception as error:
        said = f"rank {rank} of {len(printed)} returned what cannot be unpickled here: {error!r}"
        raise RankError(said, rank, traceback.format_exc(), printed) from error


def _pickle(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickled((fn, args))
    except Exception as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(
            f"fn and its arguments are copied to the ranks, but {name}, or what it refers to, cannot be "
            f"pickled: {error}; make such things inside the function"
        ) from error


# --- the ranks: workers of one host, that is kept for the next run


@dataclass(frozen=True)
class Ending:
    """The end of one rank: its pickled ``result``, or a ``text`` of what it raised or where it was.

    ``status`` is the exit code, negative for a signal.
    """

    kind: Kind
    printed: str
    text: str = ""
    result: bytes = b""
    status: int = 0


_one_at_a_time = threading.Lock()


def stop() -> None:
    """End the process that waits for the next ``run``; a later ``run`` starts another, in seconds."""
    with _one_at_a_time:
        close((_THERE,))


def _carry_out(payload: bytes, world_size: int, timeout_s: float, threads: int) -> list[Ending]:
    """Run a pickled function and its arguments on ``world_size`` ranks; return how each of them ended.

    Whatever ends this early, the user's interrupt as well, ends the ranks and their host.
    """
    limits = Limits(cpu_s=math.inf, memory=math.inf, answer=math.inf, clock_s=timeout_s)
    with _one_at_a_time:
        hosts = host((_THERE,), idle_s=_IDLE_S, environment=SAFE_TO_FORK)
        workers = [Worker(hosts, {}, limits) for _ in range(world_size)]
        try:
            answers = _answers(workers, payload, threads)
            end(workers)
        except BaseException:
            close((_THERE,))
            with contextlib.suppress(HostEndedError):
                end(workers)
            raise
    return [_ending(answers, each) for each in workers]


def _answers(workers: list[Worker], payload: bytes, threads: int) -> dict[Worker, Any]:
    """Start the ranks and let them call the function; after a failure the others may not go on for long."""
    here = {"environment": dict(os.environ), "folder": os.getcwd(), "path": list(sys.path)}
    here |= {"arguments": list(sys.argv), "cells": _cells()}
    answers, meet_at = dict[Worker, Any](), ""
    for worker in workers:
        worker.__enter__()
    for worker, failure in call_together(workers, f"{_THERE}:settle", here, threads):
        if failure is not None:
            return {worker: failure}
    for rank, worker in enumerate(workers):
        try:
            meet_at = worker.call(f"{_THERE}:enter", rank, len(workers), meet_at)
        except (Raised, Ended) as failure:
            return {worker: failure}
    for worker, answer in call_together(workers, f"{_THERE}:be", payload):
        answers[worker] = answer
        if _has_failed(answer):
            for each in workers:
                each.hurry(_OTHERS_MAY_END_S)
    return answers


def _has_failed(answer: Any) -> bool:
    """Whether a rank has raised or died, and was not ended because time was over."""
    if isinstance(answer, Ended):
        return answer.how != "time"
    return isinstance(answer, Raised) or "raised" in answer


def _ending(answers: dict[Worker, Any], worker: Worker) -> Ending:
    answer = answers.get(worker, Ended("time", ""))
    if isinstance(answer, Raised):
        answer = {"raised": f"raised {answer}"}
    if not isinstance(answer, Ended):
        kind: Kind = "raised" if "raised" in answer else "returned"
        return Ending(kind, worker.text, answer.get("raised", ""), answer.get("returned", b""))
    late: Kind = "stopped" if any(map(_has_failed, answers.values())) else "running"
    kind = "died" if _has_failed(answer) else late
    return Ending(kind, worker.text, answer.where, status=answer.status)


def _cells() -> dict[str, str]:
    """Return the source of what is in no file, a notebook's cells: tracebacks of ranks are to show it."""
    entries = [(name, entry) for name, entry in linecache.cache.items() if len(entry) == 4]
    return {name: "".join(entry[2]) for name, entry in entries if not os.path.exists(name)}


# --- what went wrong on which rank, in words

_SHOWN = 2000  # characters of what a rank printed, its end
_TRACES = 4  # ranks whose place is shown
_OURS = "amp_lessons/parallel/rank.py", "amp_lessons/_base/worker/"
_WAITING = os.path.join("torch", "distributed")


class RankError(RuntimeError):
    """A rank did not return a result: it raised, died or hung.

    ``rank`` is the one to look at, ``traceback`` what it raised or where it was, ``printed`` what each rank
    printed.
    """

    def __init__(self, message: str, rank: int, traceback: str, printed: tuple[str, ...]) -> None:
        super().__init__(message, rank, traceback, printed)  # all of it, so that it can be pickled
        self.message, self.rank, self.traceback, self.printed = message, rank, traceback, printed

    def __str__(self) -> str:
        return self.message


class RankTimeoutError(RankError, TimeoutError):
    """A rank was still running when the time was over."""


def failure(endings: Sequence[Ending], timeout_s: float) -> RankError | None:
    """Return the exception that tells what went wrong; None if every rank returned a result.

    A rank that died comes before one that raised, which may have done so because its neighbour was gone; and
    of those that hang, one that computes before those that wait for it.
    """
    for kind in ("died", "raised", "running"):
        guilty = [rank for rank, ending in enumerate(endings) if ending.kind == kind]
        if guilty:
            if kind == "running":
                guilty.sort(key=lambda rank: _WAITING in _trace(endings[rank]))
            return _error(endings, guilty, timeout_s)
    return None


def _error(endings: Sequence[Ending], guilty: list[int], timeout_s: float) -> RankError:
    rank = guilty[0]
    said = f"rank {rank} of {len(endings)} {_what(endings[rank], timeout_s)}{_others(endings, guilty)}"
    shown = guilty[:_TRACES] if endings[rank].kind == "running" else [rank]
    parts = [said, *(_under_title(f"where rank {each} was", _trace(endings[each])) for each in shown)]
    parts.append(_under_title(f"what rank {rank} printed", endings[rank].printed[-_SHOWN:]))
    kind = RankTimeoutError if endings[rank].kind == "running" else RankError
    printed = tuple(each.printed for each in endings)
    return kind("\n\n".join(filter(None, parts)), rank, _trace(endings[rank]), printed)


def _what(ending: Ending, timeout_s: float) -> str:
    if ending.kind == "running":
        return f"was still running after {timeout_s:g} s"
    if ending.kind == "raised":
        return ending.text.partition("\n")[0]
    if ending.status == -signal.SIGXCPU:
        return "closed or garbled its connection before it returned anything"
    if ending.status >= 0:
        return f"ended with exit code {ending.status} before it returned anything"
    name = signal.Signals(-ending.status).name
    return f"was ended by {name} before it returned anything{' (is memory short?)' * (name == 'SIGKILL')}"


def _trace(ending: Ending) -> str:
    """Return the traceback, without the frames that every rank has below the function it runs."""
    if ending.kind == "raised":
        return ending.text.partition("\n")[2].strip()
    lines = ending.text.strip().splitlines()
    ours = next(
        (number for number, line in enumerate(lines) if any(each in line for each in _OURS)), len(lines)
    )
    return "\n".join(lines[:ours])


def _others(endings: Sequence[Ending], guilty: list[int]) -> str:
    """Return in brackets what the other ranks did: a rank that hangs in a collective waits for another."""
    told = [f"{_names(guilty[1:])} too"] if len(guilty) > 1 else []
    for kind, did in (("died", "died"), ("raised", "raised"), ("returned", "had returned")):
        others = [rank for rank, each in enumerate(endings) if each.kind == kind and rank not in guilty]
        if others:
            told.append(f"{_names(others)} {did}")
    stopped = [rank for rank, each in enumerate(endings) if each.kind == "stopped"]
    if stopped:
        told.append(f"{_names(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped")
    return f" ({'; '.join(told)})" if told else ""


def _names(ranks: list[int]) -> str:
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        names = [*names[:4], f"{len(names) - 4} more"]
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _under_title(title: str, text: str) -> str:
    return f"--- {title} ---\n{text.strip()}" if text.strip() else ""
