"""A function on several processes that form a group, from a notebook or a script."""

from __future__ import annotations

import importlib
import io
import os
import pickle
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import cloudpickle

from amp_lessons.arguments import require_callable, require_number, require_whole
from amp_lessons.parallel import launcher
from amp_lessons.parallel.endings import RankError, failure
from amp_lessons.parallel.job import Ending

T = TypeVar("T")

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
    endings = launcher.carry_out(_pickled(fn, args), world_size, limit, threads)
    error = failure(endings, limit)
    if error is not None:
        raise error
    printed = tuple(ending.printed for ending in endings)
    results = Results(_unpickled(rank, ending, printed) for rank, ending in enumerate(endings))
    results.printed = printed
    return results


def _unpickled(rank: int, ending: Ending, printed: tuple[str, ...]) -> Any:
    try:
        return pickle.loads(ending.body)
    except Exception as error:
        said = f"rank {rank} of {len(printed)} returned what cannot be unpickled here: {error!r}"
        raise RankError(said, rank, traceback.format_exc(), printed) from error


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        written = io.BytesIO()
        _Pickler(written).dump((fn, args))
        return written.getvalue()
    except Exception as error:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise TypeError(
            f"fn and its arguments are copied to the ranks, but {name}, or what it refers to, cannot be "
            f"pickled: {error}; make such things inside the function"
        ) from error


class _Pickler(cloudpickle.CloudPickler):
    """Names modules of a class of their own, as those that load lazily are, like any other module."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType) and type(obj) is not ModuleType:
            return importlib.import_module, (obj.__name__,)
        return super().reducer_override(obj)
