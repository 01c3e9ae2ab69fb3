"""A bar that says how far long work has come, and how long it takes on this machine.

It is plain text: in a notebook among what the cell prints, in a terminal on stderr. It appears when the
work has taken a second, says from the pace of that how long all of it will take, and goes away at the end.
Where nobody watches (a pipe, a file) there is none, nor where ``TQDM_DISABLE=1`` is set, as it is where
notebooks are stored and compared: what it says differs from run to run.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Iterator, Sized
from typing import Any, TextIO, TypeVar

T = TypeVar("T")
APPEARS_AFTER_S = 1.0
_OFF = "TQDM_DISABLE"  # tqdm's own name for it, read here at each call
_KNOWN = "{desc}: about {whole} here |{bar:20}| {n_fmt} of {total_fmt}, {left} left"
_UNKNOWN = "{desc}: {n_fmt} done in {elapsed}"


def with_bar(
    steps: Iterable[T], what: str, total: int | None = None, *, within_s: float = math.inf
) -> Iterator[T]:
    """Yield ``steps``, with a bar that counts them and says ``what`` they are.

    ``total`` is how many they are, where ``len`` does not know; all of them take ``within_s`` at most. A bar
    inside another one takes its line for as long as it lasts.
    """
    stream = watched()
    if stream is None:
        return iter(steps)
    count = len(steps) if total is None and isinstance(steps, Sized) else total
    return iter(_bar_class()(steps, desc=what, total=count, file=stream, within_s=within_s))


def watched() -> TextIO | None:
    """Return the stream that somebody watches, or None; a notebook's stderr would be painted as an error."""
    if os.environ.get(_OFF, "0") not in ("", "0"):
        return None
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        return sys.stdout
    return sys.stderr if sys.stderr.isatty() else None


def _bar_class() -> type:
    from tqdm import tqdm  # here, because most of what imports this module shows no bar

    class Bar(tqdm):
        """tqdm's, which says in words how long all of it takes, and looks at the clock at every step."""

        monitor_interval = 0  # no thread of its own

        def __init__(self, steps: Iterable[Any], within_s: float, **options: Any) -> None:
            self.within_s = within_s
            layout = _UNKNOWN if options["total"] is None else _KNOWN
            super().__init__(
                steps,
                bar_format=layout,
                delay=APPEARS_AFTER_S,
                leave=False,
                mininterval=0.2,
                miniters=1,
                position=0,
                disable=False,
                **options,
            )

        @property
        def format_dict(self) -> dict[str, Any]:
            known = super().format_dict
            took_s, done = known["elapsed"], max(1, known["n"])
            whole_s = min(took_s / done * (known["total"] or 0), self.within_s)
            return {**known, "whole": in_words(whole_s), "left": in_words(max(0.0, whole_s - took_s))}

    return Bar


def in_words(seconds: float) -> str:
    """Return a time as one waits for it: ``8 s``, ``95 s``, ``3 minutes``."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} minutes"
