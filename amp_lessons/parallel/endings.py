"""What went wrong on which rank, in words."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from amp_lessons.parallel.job import Ending

_SHOWN = 2000  # characters of what a rank printed, its end
_TRACES = 4  # ranks whose place is shown
_OURS = os.path.join("amp_lessons", "parallel", "rank.py")
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
            return _error(endings, sorted(guilty, key=lambda rank: _waits(endings[rank])), timeout_s)
    return None


def _waits(ending: Ending) -> bool:
    """Whether a rank that hangs does so in a collective."""
    return ending.kind == "running" and _WAITING in _trace(ending)


def _error(endings: Sequence[Ending], guilty: list[int], timeout_s: float) -> RankError:
    rank = guilty[0]
    said = f"rank {rank} of {len(endings)} {_what(endings[rank], timeout_s)}{_others(endings, guilty)}"
    shown = guilty[:_TRACES] if endings[rank].kind == "running" else [rank]
    parts = [said, *(_titled(f"where rank {each} was", _trace(endings[each])) for each in shown)]
    parts.append(_titled(f"what rank {rank} printed", endings[rank].printed[-_SHOWN:]))
    kind = RankTimeoutError if endings[rank].kind == "running" else RankError
    printed = tuple(each.printed for each in endings)
    return kind("\n\n".join(filter(None, parts)), rank, _trace(endings[rank]), printed)


def _what(ending: Ending, timeout_s: float) -> str:
    if ending.kind == "running":
        return f"was still running after {timeout_s:g} s"
    if ending.kind == "raised":
        return _text(ending).partition("\n")[0]
    if ending.status >= 0:
        return f"ended with exit code {ending.status} before it returned anything"
    name = signal.Signals(-ending.status).name
    return f"was ended by {name} before it returned anything{' (is memory short?)' * (name == 'SIGKILL')}"


def _text(ending: Ending) -> str:
    return ending.body.decode("utf-8", "replace")


def _trace(ending: Ending) -> str:
    """Return the traceback, without the frames that every rank has below the function it runs."""
    text = _text(ending).partition("\n")[2] if ending.kind == "raised" else _text(ending)
    lines = text.strip().splitlines()
    if ending.kind == "raised":
        return "\n".join(lines)
    ours = next((number for number, line in enumerate(lines) if _OURS in line), len(lines))
    return "\n".join(lines[:ours])


def _others(endings: Sequence[Ending], guilty: list[int]) -> str:
    """Say in brackets what the other ranks did: it takes two to hang."""
    told = [f"{_named(guilty[1:])} too"] if len(guilty) > 1 else []
    for kind, did in (("died", "died"), ("raised", "raised"), ("returned", "had returned")):
        others = [rank for rank, each in enumerate(endings) if each.kind == kind and rank not in guilty]
        if others:
            told.append(f"{_named(others)} {did}")
    stopped = [rank for rank, each in enumerate(endings) if each.kind == "stopped"]
    if stopped:
        told.append(f"{_named(stopped)} {'was' if len(stopped) == 1 else 'were'} stopped")
    return f" ({'; '.join(told)})" if told else ""


def _named(ranks: list[int]) -> str:
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        names = [*names[:4], f"{len(names) - 4} more"]
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def _titled(title: str, text: str) -> str:
    return f"--- {title} ---\n{text.strip()}" if text.strip() else ""
